// Command servers runs a command with the servers of the tests beside it:
//
//	go run ./cmd/servers [-with postgres,rabbitmq,nats,kafka] -- COMMAND ARGS...
//
// It installs what is missing, starts the servers in a temporary directory,
// tells COMMAND where they are through INBOX_TEST_POSTGRES, INBOX_TEST_RABBITMQ,
// INBOX_TEST_NATS and INBOX_TEST_KAFKA, and takes everything down when COMMAND
// ends. The exit code is that of COMMAND (of which `go run` only keeps whether
// it is zero). A variable that is set already means
// that such a server runs elsewhere: it is used, and none is started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func main() {
	with := flag.String("with", strings.Join(servers.Names(), ","), "comma-separated `servers` to run")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: servers [-with SERVERS] -- COMMAND ARGS...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	code, err := run(ctx, strings.Split(*with, ","), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command, or 1 with the error that kept the
// command from running.
func run(ctx context.Context, names, argv []string) (code int, err error) {
	var missing []string
	for _, name := range names {
		if os.Getenv(servers.Variable(name)) != "" {
			say("%s: using the one that %s names", name, servers.Variable(name))
		} else {
			missing = append(missing, name)
		}
	}
	if err := servers.Ensure(ctx, os.Stderr, missing...); err != nil {
		return 1, err
	}

	group, err := newGroup(missing)
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := group.stop(); stopErr != nil {
			err = errors.Join(err, stopErr)
			code = max(code, 1)
		}
	}()
	if err := group.start(ctx); err != nil {
		return 1, err
	}
	return execute(ctx, argv, group.environ())
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
