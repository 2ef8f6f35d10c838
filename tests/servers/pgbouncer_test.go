package servers_test

import (
	"io"
	"testing"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	if err := servers.Ensure(t.Context(), io.Discard, "pgbouncer"); err != nil {
		t.Fatal(err)
	}
	postgres := newServer(t, "postgres")
	start(t, postgres)
	s := servers.NewPgBouncer(t.TempDir(), postgres.Addr())
	answers := func() {
		if got := psql(t, s.Addr(), "select current_user"); got != "postgres" {
			t.Errorf("the user through the proxy is %q", got)
		}
	}
	testRestarts(t, s, answers, answers)
}
