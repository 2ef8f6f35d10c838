// Command quickstart shows what the inbox is for, with nothing to install: Watermill's in-memory Pub/Sub is the broker
// and a SQLite file the database.
//
//	go run . [-inbox=false] [-events FILE] [-db FILE]
//
// A shop charges a customer for every order event. Every event arrives three times, concurrently and out of order; some
// handlers fail after their work, one panics; some receipts cannot be published after the commit; and half-way the
// service is stopped in the middle of its work and started again. In the end a table, read from the database, tells how
// often customers were charged. The exit code is 0, or 1 when the inbox lost or doubled something, or 2 when the program
// could not do its work.
//
//	-inbox=false  runs the very same program with a plain transaction in the place of the inbox
//	-events FILE  takes events of your own: one JSON object per line, with the fields source (may be empty), id, type,
//	              order_id, customer and amount_cents. Lines with the same source and id are one event.
//	-db FILE      keeps the database. Run again with the same events, and nothing is charged.
//
// Start reading in handler.go, which is what a service looks like, and service.go, where the inbox is added. delivery.go
// makes the trouble, broker.go gives the in-memory broker a memory, report.go reads the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"
)

// Exit codes.
const (
	exitKept   = 0
	exitBroken = 1
	exitFailed = 2
)

type config struct {
	events string
	inbox  bool
	db     string
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()

	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cfg config

	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.events, "events", "", "JSON-lines `file` of order events (default: 300 events of a web shop)")
	flags.BoolVar(&cfg.inbox, "inbox", true, "put the inbox in front of the handler")
	flags.StringVar(&cfg.db, "db", "", "keep the SQLite database in this `file` (default: a temporary one)")

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitKept
		}

		return exitFailed
	}

	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "quickstart: unexpected argument %q\n", flags.Arg(0))

		return exitFailed
	}

	result, err := demonstrate(ctx, cfg, stdout)
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)

		return exitFailed
	}

	fmt.Fprintln(stdout)
	result.print(stdout)

	verdict, ok := result.verdict(cfg.inbox)
	fmt.Fprintln(stdout, verdict)

	if !ok {
		return exitBroken
	}

	return exitKept
}

// demonstrate loads the events, lets two lives of the service handle them and reads the outcome.
func demonstrate(ctx context.Context, cfg config, stdout io.Writer) (_ *report, err error) {
	file, err := loadEvents(cfg.events)
	if err != nil {
		return nil, err
	}

	if cfg.db == "" {
		dir, err := os.MkdirTemp("", "quickstart-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)

		cfg.db = filepath.Join(dir, "quickstart.db")
	}

	db, err := openDatabase(ctx, cfg.db)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	if err := prepareDatabase(ctx, db, cfg.inbox, file.events); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.db, err)
	}

	introduce(stdout, cfg, file)

	n := &counters{}
	err = deliverAll(ctx, cfg, schedule(file.lines), n, &narrator{w: stdout, start: time.Now()})

	if problem := n.problem(); problem != nil {
		err = errors.Join(err, fmt.Errorf("%d deliveries failed, the last with: %w", n.unexpected.Load(), problem))
	}

	if err != nil {
		return nil, err
	}

	if err := n.save(ctx, db); err != nil {
		return nil, err
	}

	return readReport(ctx, db)
}

func introduce(w io.Writer, cfg config, file *eventFile) {
	fmt.Fprintf(w, "%d events of %s, each delivered %d times, concurrently, out of order.\n",
		len(file.events), filepath.Base(file.name), copies)

	if file.repeats > 0 {
		fmt.Fprintf(w, "%d more lines repeat an event (same source and id): more deliveries of it.\n", file.repeats)
	}

	if cfg.inbox {
		fmt.Fprintln(w, "The inbox is on; -inbox=false runs the same program without it.")
	} else {
		fmt.Fprintln(w, "The inbox is OFF: a plain transaction is in its place.")
	}
}

// deliverAll has half of the deliveries handled by one life of the service and the rest by the next.
func deliverAll(ctx context.Context, cfg config, deliveries []orderEvent, n *counters, tell *narrator) (err error) {
	b := newBroker()
	defer func() { err = errors.Join(err, b.shutDown()) }()

	watching, stopWatching := context.WithCancel(ctx)

	var watcher sync.WaitGroup
	watcher.Go(func() { tell.watch(watching, n) })

	defer watcher.Wait()
	defer stopWatching()

	half := len(deliveries) / 2
	atWork := min(half, mostUnacked)

	err = withService(ctx, cfg, b, n, func() error {
		if err := deliver(ctx, b, deliveries[:half-atWork]); err != nil {
			return err
		}

		return publish(b, deliveries[half-atWork:half])
	})
	if err != nil {
		return err
	}

	_, unacked := b.progress()
	tell.say("service stopped at work; a new one gets the %d unacked messages again", unacked)

	return withService(ctx, cfg, b, n, func() error {
		if err := b.redeliver(); err != nil {
			return err
		}

		if err := deliver(ctx, b, deliveries[half:]); err != nil {
			return err
		}

		return drain(ctx, b, 0)
	})
}

// withService runs fn while the service runs.
func withService(ctx context.Context, cfg config, b *broker, n *counters, fn func() error) error {
	s, err := startService(ctx, cfg.db, cfg.inbox, b, n)
	if err != nil {
		return err
	}

	return errors.Join(fn(), s.stop())
}
