package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/watermill-inbox/inbox/tests/servers"
)

// execute runs the command to its end and returns its exit code, as a shell
// would: 128 plus the number of the signal that ended it, if one did.
func execute(ctx context.Context, argv, env []string) (int, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.WaitDelay = 10 * time.Second

	// A process group of its own lets all processes of the command be told
	// when to end. On a terminal they have to stay in the foreground group, to
	// be able to read from it; there Ctrl-C reaches all of them anyway.
	target := func() int { return cmd.Process.Pid }
	if !onTerminal() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		target = func() int { return -cmd.Process.Pid }
	}
	cmd.Cancel = func() error { return syscall.Kill(target(), syscall.SIGTERM) }

	if err := servers.StartTied(cmd, syscall.SIGTERM); err != nil {
		return 1, err
	}
	dismiss, err := guard(target())
	if err != nil {
		return 1, err
	}
	defer dismiss()

	if err := cmd.Wait(); err != nil && cmd.ProcessState == nil {
		return 1, err
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

func onTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	tty.Close()
	return true
}

// guard starts a process that sends SIGTERM to target, which is a process or,
// if negative, a process group, when this process dies. The signal on the
// death of a parent reaches the command itself but not what the command has
// started. The guard notices by the end of its standard input.
func guard(target int) (dismiss func(), err error) {
	cmd := exec.Command("sh", "-c", `read -r dismissed || kill -s TERM -- "$1"`, "guard", strconv.Itoa(target))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		_, _ = io.WriteString(stdin, "dismissed\n")
		_ = cmd.Wait()
	}, nil
}
