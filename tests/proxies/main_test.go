// Package proxies_test shows the inbox on a PostgreSQL that is not quite a plain connection at the default settings:
// behind PgBouncer in transaction mode, at stricter isolation levels, and when the server is restarted or killed in the
// middle of commits. Events are delivered to the middleware directly.
package proxies_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestMain(m *testing.M) {
	// The goroutine that starts servers lives as long as the process: have it there before looking for leaks.
	cmd := exec.Command("true")
	if err := errors.Join(servers.StartTied(cmd, syscall.SIGKILL), cmd.Wait()); err != nil {
		panic(err)
	}

	if err := servers.Ensure(context.Background(), os.Stderr, "pgbouncer"); err != nil {
		panic(err)
	}

	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}
