package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// process is a worker that runs as a child of this program.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	acks  chan string
	ended chan struct{} // closed after err is set
	err   error
}

// startWorker runs this program again. The worker is killed when ctx ends, so that none outlives this program.
func startWorker(ctx context.Context, settings workerSettings, stderr io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	variable, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}

	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(variable))
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

	p := &process{cmd: cmd, stdin: stdin, acks: make(chan string, 1), ended: make(chan struct{})}
	go p.listen(stdout)

	return p, nil
}

// listen ends with the process.
func (p *process) listen(stdout io.Reader) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		p.acks <- lines.Text() // there is room: each order is waited for
	}

	p.err = p.cmd.Wait()
	close(p.ended)
}

// deliver returns when the broker's message is acked.
func (p *process) deliver(o order) error {
	if err := json.NewEncoder(p.stdin).Encode(o); err != nil {
		return p.problem(err)
	}

	select {
	case <-p.acks:
		return nil
	case <-p.ended:
		return p.problem(nil)
	}
}

func (p *process) problem(err error) error {
	<-p.ended

	return fmt.Errorf("the worker ended too early: %w", errors.Join(err, p.err))
}

// kill is SIGKILL: the process has no chance to do anything more.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended

	return err
}

// stop lets the process finish what it is doing.
func (p *process) stop() error {
	_ = p.stdin.Close() // it may have ended already, and then err says so
	<-p.ended

	return p.err
}
