package crash

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// fleet is several workers of one service, and what befalls them.
type fleet struct {
	told   *tally
	random *rand.Rand
	args   []string

	all     []*process // that were ever started
	running []*process // now
	stalls  sync.WaitGroup

	kills, stalled, restarts int
}

func startFleet(t *testing.T, random *rand.Rand, size int, args ...string) *fleet {
	t.Helper()

	f := &fleet{told: newTally(), random: random, args: args}
	t.Cleanup(func() {
		for _, p := range f.running {
			p.kill()
		}

		f.stalls.Wait()

		for _, p := range f.all {
			p.check(t)
		}
	})

	for i := range size {
		f.running = append(f.running, f.start(t, i))
	}

	f.awaitRunning(t)

	return f
}

// start starts a worker for place i. The one in the first place has the race detector, which makes it several times slower.
func (f *fleet) start(t *testing.T, i int) *process {
	t.Helper()

	program := worker
	if i == 0 {
		program = racedWorker
	}

	p, err := launch(f.told, t.TempDir(), program, nil, append(f.args, fmt.Sprintf("-seed=%d", f.random.Uint64()))...)
	require.OK(t, err)

	f.all = append(f.all, p)

	return p
}

func (f *fleet) awaitRunning(t *testing.T) {
	t.Helper()
	await(t, "all workers to run", func() bool {
		f.requireAlive(t)

		return f.told.of("worker runs") == len(f.all)
	})
}

// kill kills one of the workers, and starts another in its place. That one ends when it finds no database, so it has to run
// before anything else happens.
func (f *fleet) kill(t *testing.T) {
	t.Helper()

	i := f.random.IntN(len(f.running))
	f.running[i].kill()
	f.running[i] = f.start(t, i)
	f.kills++

	f.awaitRunning(t)
}

// stall stops one of the workers for d, wherever it is.
func (f *fleet) stall(t *testing.T, d time.Duration) {
	t.Helper()

	p := f.running[f.random.IntN(len(f.running))]
	require.OK(t, p.signal(syscall.SIGSTOP))

	f.stalled++
	f.stalls.Go(func() {
		<-time.After(d)

		if err := p.signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
}

// restart kills a server, or stops it, and starts it again.
func (f *fleet) restart(t *testing.T, server servers.Server, down func() error) {
	t.Helper()
	require.OK(t, down())
	require.OK(t, server.Start(t.Context()))

	f.restarts++
}

// requireAlive fails when a worker ended by itself.
func (f *fleet) requireAlive(t *testing.T) {
	t.Helper()

	for _, p := range f.running {
		select {
		case <-p.ended:
			t.Fatalf("a worker ended by itself: %v (log in %s)", p.err, filepath.Dir(p.races))
		default:
		}
	}
}

func (f *fleet) stop(t *testing.T) {
	t.Helper()
	f.stalls.Wait()

	for _, p := range f.running {
		p.stop(t)
	}
}

// startServer starts a server that this test alone uses.
func startServer(t *testing.T, name string) servers.Server {
	t.Helper()

	server, err := servers.New(name, t.TempDir())
	require.OK(t, err)
	require.OK(t, server.Start(t.Context()))
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})

	return server
}
