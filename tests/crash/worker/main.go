// Command worker is the service that the tests of this folder start, stall and kill: Watermill's router, and handlers of
// which each is a consumer in store-then-process mode. It ends when its standard input does, and tells on its standard
// output what happens, one line each, so that what was told before a kill is known.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/inbox"
)

type settings struct {
	dsn, schema   string
	broker, topic string
	handlers      string
	concurrency   int
	ingest        int
	lease         time.Duration
	trouble       int
	seed          uint64
}

func main() {
	var set settings

	flag.StringVar(&set.dsn, "dsn", "", "PostgreSQL with the tables")
	flag.StringVar(&set.schema, "schema", "public", "of the inbox and of the tables that handlers write to")
	flag.StringVar(&set.broker, "broker", "", "RabbitMQ; without it the worker hands out what is stored")
	flag.StringVar(&set.topic, "topic", "", "of the messages")
	flag.StringVar(&set.handlers, "handlers", "", "names of handlers, separated by commas; each is a consumer")
	flag.IntVar(&set.concurrency, "concurrency", 0, "messages handed out at a time, instead of the default")
	flag.IntVar(&set.ingest, "ingest", 1, "subscriptions to the broker for each handler")
	flag.DurationVar(&set.lease, "lease", 0, "instead of the default")
	flag.IntVar(&set.trouble, "trouble", 0, "of 1,000 handler calls, how many fail at each point where they can")
	flag.Uint64Var(&set.seed, "seed", 0, "of what happens at random")
	flag.Parse()

	log := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := run(set, log); err != nil {
		log.Error("Worker failed", err, nil)
		os.Exit(1)
	}
}

func run(set settings, log watermill.LoggerAdapter) error {
	db, err := sql.Open("postgres", set.dsn)
	if err != nil {
		return err
	}
	defer db.Close()

	db.SetMaxOpenConns(40)
	db.SetMaxIdleConns(40)

	ib, err := inbox.New(db, inbox.Postgres, inbox.WithTable(set.schema+".inbox"), inbox.WithLogger(log),
		inbox.WithHooks(inbox.Hooks{
			Duplicate: func(_ context.Context, ev inbox.Event) { tell(ev.Consumer, "duplicate") },
			Dead:      func(_ context.Context, ev inbox.Event, _ error) { tell(ev.Consumer, "dead") },
		}))
	if err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{}, log)
	if err != nil {
		return err
	}

	h := newHandlers(db, set)

	for name := range strings.SplitSeq(set.handlers, ",") {
		sub, err := subscribe(ib, name, set, log)
		if err != nil {
			return err
		}

		router.AddConsumerHandler(name, set.topic, sub, h.named(name))
	}

	stopped := make(chan error, 1)

	go func() { stopped <- router.Run(context.Background()) }()

	select {
	case <-router.Running():
		tell("worker", "runs")
	case err := <-stopped:
		return err
	}

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		h.release()
	}

	return errors.Join(router.Close(), <-stopped)
}

func subscribe(ib *inbox.Inbox, consumer string, set settings, log watermill.LoggerAdapter) (message.Subscriber, error) {
	opts := []inbox.SubscriberOption{inbox.WithBackoff(50*time.Millisecond, time.Second), inbox.WithIngest(set.ingest)}
	if set.concurrency > 0 {
		opts = append(opts, inbox.WithConcurrency(set.concurrency))
	}

	if set.lease > 0 {
		opts = append(opts, inbox.WithLease(set.lease))
	}

	if set.broker == "" {
		return ib.Backlog(consumer, opts...)
	}

	broker, err := rabbitMQ(set.broker, consumer, log)
	if err != nil {
		return nil, err
	}

	return ib.Subscriber(consumer, broker, opts...)
}

// tell writes at once.
func tell(who, what string) { fmt.Fprintln(os.Stdout, who, what) }
