package crash

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// tally counts what workers tell, line by line.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func newTally() *tally { return &tally{counts: make(map[string]int)} }

func (y *tally) add(line string) {
	y.mu.Lock()
	defer y.mu.Unlock()

	y.counts[line]++
}

// of returns how many of these lines were told.
func (y *tally) of(lines ...string) (n int) {
	y.mu.Lock()
	defer y.mu.Unlock()

	for _, line := range lines {
		n += y.counts[line]
	}

	return n
}

// process is a worker.
type process struct {
	told *tally

	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when it has, and err says how
	err   error
	races string // where the race detector's reports go
}

// start runs a program, and returns when its router runs.
func start(t *testing.T, told *tally, program func() (string, error), env []string, args ...string) *process {
	t.Helper()

	p, err := launch(told, t.TempDir(), program, env, args...)
	require.OK(t, err)

	t.Cleanup(func() {
		p.kill()
		p.check(t)
	})

	require.Eventually(t, "a worker runs", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("worker ended at once: %v", p.err)
		default:
		}

		return told.of("worker runs") > 0
	})

	return p
}

// launch starts a program that keeps its logs in a folder.
func launch(told *tally, dir string, program func() (string, error), env []string, args ...string) (*process, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}

	p := &process{told: told, cmd: exec.Command(path, args...), ended: make(chan struct{}), races: filepath.Join(dir, "race")}
	p.cmd.Env = append(append(os.Environ(), "GORACE=exitcode=0 log_path="+p.races), env...)

	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()

	p.cmd.Stderr = log

	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}

	if err := servers.StartTied(p.cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}

	go func() {
		defer close(p.ended)

		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			told.add(lines.Text())
		}

		p.err = p.cmd.Wait()
	}()

	return p, nil
}

// kill ends the process as the kernel does when memory runs out.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// signal stalls the process with SIGSTOP, and has it go on with SIGCONT.
func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		return err
	}

	return nil
}

// release lets held handlers go on.
func (p *process) release(t *testing.T) {
	t.Helper()

	_, err := fmt.Fprintln(p.stdin, "go")
	require.OK(t, err)
}

// stop has the process close its router and end.
func (p *process) stop(t *testing.T) {
	t.Helper()

	require.OK(t, p.stdin.Close())
	require.Await(t, "a worker to end", p.ended)

	if p.err != nil {
		t.Errorf("worker: %v", p.err)
	}
}

// check shows how the process logged its end when the test failed, and fails when the race detector reported something.
// One race is let pass: the connection of watermill-amqp v3.1.0 replaces a channel without a lock when it reconnects.
func (p *process) check(t *testing.T) {
	t.Helper()

	const (
		separator = "=================="
		known     = "amqp.(*ConnectionWrapper).handleConnectionClose()"
		most      = 8 << 10
	)

	reports, err := filepath.Glob(p.races + ".*") // the process's id is appended
	require.OK(t, err)

	for _, file := range reports {
		text, err := os.ReadFile(file)
		require.OK(t, err)

		for report := range strings.SplitSeq(string(text), separator) {
			if strings.Contains(report, "DATA RACE") && !strings.Contains(report, known) {
				t.Errorf("a worker has a data race:\n%s", report)
			}
		}
	}

	if t.Failed() {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(p.races), "log"))
		require.OK(t, err)
		t.Logf("end of a worker's log:\n%s", text[max(0, len(text)-most):])
	}
}
