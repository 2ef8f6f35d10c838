package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// process is a service that runs as a child of this program.
type process struct {
	role  string
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string   // what it tells, closed when it ended
	ended chan struct{} // closed after err is set
	err   error

	killed bool
}

// start runs this program again, as one of the services. onPublished is called for each message that a relay published.
func start(cfg config, role string, hold int, stderr io.Writer, onPublished func()) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(self, "-db", cfg.dsn, "-broker", cfg.broker, "-broker-addr", cfg.addr, "-orders", strconv.Itoa(cfg.orders))
	cmd.Env = append(os.Environ(), roleVariable+"="+role, runVariable+"="+cfg.runID, holdVariable+"="+strconv.Itoa(hold))
	cmd.Stderr = stderr

	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	p := &process{role: role, cmd: cmd, stdin: stdin, lines: make(chan string, 2), ended: make(chan struct{})}
	go p.listen(stdout, onPublished)

	return p, nil
}

// listen ends with the process.
func (p *process) listen(stdout io.Reader, onPublished func()) {
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
		if line := scanner.Text(); line == published {
			onPublished()
		} else {
			p.lines <- line // there is room: running and holding are told once
		}
	}

	p.err = p.cmd.Wait()

	close(p.lines)
	close(p.ended)
}

// expect waits for what the process tells next.
func (p *process) expect(ctx context.Context, want string) error {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return fmt.Errorf("the %s ended before it was %s: %w", p.role, want, p.err)
		}

		if line != want {
			return fmt.Errorf("the %s said %q instead of %q", p.role, line, want)
		}

		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the %s to be %s: %w", p.role, want, context.Cause(ctx))
	}
}

// kill is SIGKILL: the process has no chance to do anything more.
func (p *process) kill() error {
	p.killed = true

	err := p.cmd.Process.Kill()
	<-p.ended

	return err
}

// wait is for a process that ends by itself.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.ended:
		return p.err
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("waiting for the %s to end: %w", p.role, context.Cause(ctx)), p.kill())
	}
}

// stop lets the process finish what it is doing.
func (p *process) stop(ctx context.Context) error {
	_ = p.stdin.Close() // it may have ended already, and then wait says so

	return p.wait(ctx)
}

// sharedWriter is where several processes write to.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.w.Write(b)
}
