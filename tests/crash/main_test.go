// Package crash shows what store-then-process promises when things go wrong at once, with real processes: workers that are
// killed and stalled at random, a database and a broker that go down, clocks that disagree, and a backlog that does not
// fit into memory. Run it with -v to see what it counted.
//
// What happens at random follows from a seed, which is printed; INBOX_TEST_SEED sets it. The order in which processes run does
// not.
package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "inbox-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	programs = dir

	// The thread that starts processes lives on, and is not a leak.
	toolchain := exec.Command("go", "version")
	if err := errors.Join(servers.StartTied(toolchain, syscall.SIGKILL), toolchain.Wait()); err != nil {
		fmt.Fprintln(os.Stderr, "tests build their workers with the go command:", err)
		os.Exit(1)
	}

	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)

			code = max(code, 1)
		}

		os.Exit(code)
	}))
}

// programs is where the workers are built.
var programs string

// The programs that run as workers.
var (
	worker        = sync.OnceValues(func() (string, error) { return build("worker") })
	racedWorker   = sync.OnceValues(func() (string, error) { return build("raced", "-race") })
	clockedWorker = sync.OnceValues(buildClocked)
)

// build compiles the worker, and returns the program's path.
func build(name string, flags ...string) (string, error) {
	program := filepath.Join(programs, name)
	args := append([]string{"build", "-o", program}, flags...)

	if out, err := exec.Command("go", append(args, "./worker")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the worker: %w\n%s", err, out)
	}

	return program, nil
}

// newSeed returns the seed of a test, and shows it.
func newSeed(t *testing.T) uint64 {
	t.Helper()

	seed := uint64(time.Now().UnixNano()) % 1_000_000

	if given := os.Getenv("INBOX_TEST_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("INBOX_TEST_SEED: %v", err)
		}
	}

	t.Logf("INBOX_TEST_SEED=%d", seed)

	return seed
}
