// Command long-handler shows store-then-process, the mode for handlers that call something slow, and what is left when their
// process is killed in the middle of the calls. There is nothing to install:
//
//	go run . [-mails N] [-kill N] [-idempotency=false] [-delay D] [-seed N]
//
// A worker sends a mail for each order through an HTTP API that takes its time and sometimes answers with a 500. Its broker is
// Watermill's in-memory Pub/Sub, which forgets everything with the process; the inbox has stored the messages in a
// SQLite file by then. The worker is killed (SIGKILL) when the API has accepted mails whose answers are still on their way, and
// another one is started, which gets no message from its broker and goes on from the table.
//
// What to see in the table that is printed in the end:
//
//   - Nothing is missing: a message stays stored until its handler has succeeded. A call that fails is a nack, and is
//     made again after a pause. What the dead worker had at hand comes again when its leases have run out.
//   - So the API is called again for mails that it has accepted. No inbox can prevent that, since the mail is outside of
//     the database. But the second call has the same idempotency key, the event's id, and the API sends nothing again.
//   - With -idempotency=false the worker sends no key, and those customers get their mail twice.
//   - What the handler writes into the database with inbox.InTx is there once, either way: the row and the end of the
//     message are one transaction. It begins after the call, so none is open while the API takes its time.
//
// The exit code is 0, or 1 when something was lost or doubled that should not be, or 2 when the program could not do its work.
//
// Start reading in handler.go and worker.go, which are what a service looks like. api.go is the mail API,
// demonstration.go kills the worker, report.go prints the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"
)

// Exit codes.
const (
	exitKept   = 0
	exitBroken = 1
	exitFailed = 2
)

type config struct {
	mails, kill int
	keys        bool
	delay       time.Duration
	seed        uint64
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()

	if settings := os.Getenv(workerVariable); settings != "" {
		os.Exit(runWorker(ctx, settings, os.Stdin, os.Stdout, os.Stderr))
	}

	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitKept
	}

	var result *report
	if err == nil {
		result, err = demonstrate(ctx, cfg, stdout, stderr)
	}

	if err != nil {
		fmt.Fprintln(stderr, "long-handler:", err)

		return exitFailed
	}

	fmt.Fprintln(stdout)
	result.print(stdout)

	if !result.kept() {
		return exitBroken
	}

	return exitKept
}

func parse(args []string, stderr io.Writer) (cfg config, err error) {
	flags := flag.NewFlagSet("long-handler", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&cfg.mails, "mails", 24, "`number` of orders, each of which gets a mail")
	flags.IntVar(&cfg.kill, "kill", 10, "kill the worker from the mail with this `number` on; 0 is never")
	flags.BoolVar(&cfg.keys, "idempotency", true, "call the API with the event's id as idempotency key")
	flags.DurationVar(&cfg.delay, "delay", 2*time.Second, "longest `time` that the API takes; the shortest is a sixth of it")
	flags.Uint64Var(&cfg.seed, "seed", 1, "`seed` of the API's delays and failures")

	if err := flags.Parse(args); err != nil {
		return cfg, err
	}

	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case cfg.mails < 1:
		return cfg, fmt.Errorf("-mails %d: must be at least 1", cfg.mails)
	case cfg.kill < 0 || cfg.kill > cfg.mails:
		return cfg, fmt.Errorf("-kill %d: must be between 0 and the number of mails, %d", cfg.kill, cfg.mails)
	case cfg.delay < 0 || cfg.delay > callTimeout/2:
		return cfg, fmt.Errorf("-delay %s: must be between 0 and %s", cfg.delay, callTimeout/2)
	}

	return cfg, nil
}
