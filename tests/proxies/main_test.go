// Package proxies_test shows the inbox on a PostgreSQL that is not quite a plain connection at the default settings:
// behind PgBouncer in transaction mode, at stricter isolation levels, and when the server is restarted or killed in the
// middle of commits. Events are delivered to the middleware directly.
package proxies_test

import (
	"context"
	"os"
	"testing"

	"github.com/watermill-inbox/inbox/tests/leaks"
	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestMain(m *testing.M) {
	if err := servers.Ensure(context.Background(), os.Stderr, "pgbouncer"); err != nil {
		panic(err)
	}

	leaks.Verify(m)
}
