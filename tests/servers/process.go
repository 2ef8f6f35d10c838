package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const pollInterval = 25 * time.Millisecond

// command describes a process to start.
type command struct {
	path string
	args []string
	env  []string            // added to the environment of this process
	user *syscall.Credential // nil: the current user

	stopSignal   syscall.Signal // asks for a clean shutdown; SIGTERM if zero
	orphanSignal syscall.Signal // sent when this process dies; SIGKILL if zero

	// ready is polled until it returns nil.
	ready func(context.Context) error
}

// process is a started command. It leads a process group of its own, which
// keeps the Ctrl-C of a terminal away from it.
type process struct {
	command
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // result of Wait, set before exited is closed
}

// spawner starts processes on one OS thread that lives as long as this
// process. Linux sends the parent-death signal when the thread which forked
// the child ends, not the process; a thread of the Go scheduler could end at
// any time.
var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
})

// StartTied starts cmd such that it gets sig when this process dies, even by
// SIGKILL. (On Linux only; elsewhere cmd outlives a killed parent.)
func StartTied(cmd *exec.Cmd, sig syscall.Signal) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	signalOnParentDeath(cmd.SysProcAttr, sig)

	started := make(chan error)
	spawner() <- func() { started <- cmd.Start() }
	return <-started
}

func spawn(c command, logFile string) (*process, error) {
	if c.stopSignal == 0 {
		c.stopSignal = syscall.SIGTERM
	}
	if c.orphanSignal == 0 {
		c.orphanSignal = syscall.SIGKILL
	}
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	cmd := exec.Command(c.path, c.args...)
	cmd.Dir = filepath.Dir(logFile)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.user}
	if err := StartTied(cmd, c.orphanSignal); err != nil {
		return nil, err
	}

	p := &process{command: c, cmd: cmd, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-p.exited:
			return fmt.Errorf("%s exited before it was ready: %w", filepath.Base(p.path), p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready (%w): %w", filepath.Base(p.path), err, ctx.Err())
		}
	}
}

// stop asks the process to shut down, and kills it when ctx ends first.
func (p *process) stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(p.stopSignal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("clean shutdown did not finish, killed: %w", ctx.Err()), p.kill())
	}
}

// kill sends SIGKILL to the process and everything it started. The process
// group does not cover that: children of PostgreSQL and of the Erlang VM open
// sessions of their own. Stopping the parent first keeps it from starting
// another child, or from reacting to the death of one, in the meantime.
func (p *process) kill() error {
	if !p.alive() {
		return nil
	}
	pid := p.cmd.Process.Pid
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	children := descendants(pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	<-p.exited
	return awaitGone(children)
}

func awaitGone(pids []int) error {
	deadline := time.After(10 * time.Second)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for _, pid := range pids {
		for running(pid) {
			select {
			case <-ticker.C:
			case <-deadline:
				return fmt.Errorf("process %d survived SIGKILL", pid)
			}
		}
	}
	return nil
}

// descendants returns the children of a process and their children.
func descendants(root int) []int {
	children := make(map[int][]int)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if _, parent, ok := processStat(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

// running reports whether a process exists and is not merely waiting to be
// reaped; in a container nobody may ever reap it.
func running(pid int) bool {
	state, _, ok := processStat(pid)
	return ok && state != "Z" && state != "X"
}

// processStat reads the state and the parent of a process. The command name
// before them is in parentheses and may itself contain anything.
func processStat(pid int) (state string, parent int, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// logTail returns the last lines of a log, formatted to follow an error.
func logTail(file string) string {
	const maxLines, maxBytes = 25, 8 << 10
	content, err := os.ReadFile(file)
	if err != nil || len(content) == 0 {
		return ""
	}
	content = content[max(0, len(content)-maxBytes):]
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	return fmt.Sprintf("\nend of %s:\n\t%s", file, strings.Join(lines, "\n\t"))
}
