// Package process runs services in processes of their own, which can be killed. They are the test's own program, started
// with a variable in their environment that says what to be.
package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// Process is a child of this process. It is killed when the test ends.
type Process struct {
	// Lines is what it writes to its standard output, closed at the end.
	Lines <-chan string

	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

// Start starts a process with a specification of what to do, in JSON.
func Start(t *testing.T, variable string, spec any) *Process {
	t.Helper()

	encoded, err := json.Marshal(spec)
	require.OK(t, err)

	self, err := os.Executable()
	require.OK(t, err)

	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"="+string(encoded))
	cmd.Stderr = os.Stderr

	stdin, err := cmd.StdinPipe()
	require.OK(t, err)

	stdout, err := cmd.StdoutPipe()
	require.OK(t, err)

	require.OK(t, servers.StartTied(cmd, syscall.SIGKILL))

	const most = 10_000 // lines of one process, so that nobody has to read them
	lines := make(chan string, most)
	p := &Process{Lines: lines, cmd: cmd, stdin: stdin, ended: make(chan struct{})}

	go func() {
		defer close(p.ended)

		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}

		close(lines)

		_ = cmd.Wait() // ProcessState says how it ended
	}()

	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
	})

	return p
}

// Stop closes the standard input, at the end of which the process has to end by itself.
func (p *Process) Stop(t *testing.T) {
	t.Helper()
	require.OK(t, p.stdin.Close())
	require.Equal(t, "end", p.AwaitEnd(t), "exit status 0")
}

// Kill ends the process as the kernel does when memory runs out.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	require.OK(t, p.cmd.Process.Kill())
	require.Equal(t, "end", p.AwaitEnd(t), "signal: killed")
}

// AwaitEnd waits for the process to end by itself, and returns how it did, such as "exit status 1".
func (p *Process) AwaitEnd(t *testing.T) string {
	t.Helper()
	require.Await(t, "the end of the process", p.ended)

	return p.cmd.ProcessState.String()
}

// Main is for the start of TestMain. In a process that Start started it runs what it is to be, and does not return.
func Main[Spec any](variable string, run func(Spec) error) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return
	}

	var spec Spec

	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = run(spec)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}

	os.Exit(0)
}

// UntilStopped returns when the parent calls Stop.
func UntilStopped() error {
	_, err := io.Copy(io.Discard, os.Stdin)

	return err
}
