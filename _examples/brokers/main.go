// Command brokers runs one handler behind five brokers, with the inbox in PostgreSQL in front of it:
//
//	go run . -broker gochannel|rabbitmq|kafka|nats|sql [-broker-addr ADDR] [-db DSN] [-run ID] [-events N]
//
// It publishes N events, each twice, handles them and prints what the database says: every event has one charge. The
// exit code is 1 when one has none or several, and 2 when the program could not do its work.
//
// A service that moves from one broker to another gets events from both for a while. Give two runs the same ID to see
// that: they publish the same events, and whatever broker comes second brings duplicates only.
//
//	go run . -run monday -broker rabbitmq
//	go run . -run monday -broker kafka
//
// Everything but the brokers' own queues, topics, streams and tables (named BROKER-orders-ID) is in the schema
// brokers_example of the database. handler.go is the handler; each broker_*.go has what a service needs to know about
// one broker.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Exit codes.
const (
	exitKept   = 0
	exitBroken = 1
	exitFailed = 2
)

type config struct {
	broker, addr, dsn, run string
	events                 int
	patience               time.Duration
}

// topic is one of the run's own, so that no other run takes its messages. As with most migrations, the topics of two
// brokers have different names.
func (c config) topic() string { return c.broker + "-orders-" + c.run }

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()

	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitKept
	}

	var r *result
	if err == nil {
		r, err = handleEverything(ctx, cfg, stdout, stderr)
	}

	if err != nil {
		fmt.Fprintln(stderr, "brokers:", err)

		return exitFailed
	}

	if r.doubled > 0 || r.missing > 0 {
		fmt.Fprintln(stdout, "BROKEN: doubled and missing must be 0.")

		return exitBroken
	}

	fmt.Fprintln(stdout, "Kept: every event has one charge.")

	return exitKept
}

// runPattern keeps the name of the topic legal everywhere, as part of a PostgreSQL table's name of 63 bytes for one.
var runPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// parse returns errors that were not printed yet, except for flag.ErrHelp.
func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{patience: 30 * time.Second}

	flags := flag.NewFlagSet("brokers", flag.ContinueOnError)
	flags.StringVar(&cfg.broker, "broker", "", "`name` of the broker: "+brokerNames())
	flags.StringVar(&cfg.addr, "broker-addr", "", "its `address` (default: that of one on this machine; for sql the value of -db)")
	flags.StringVar(&cfg.dsn, "db", defaultDSN, "`DSN` of the PostgreSQL database")
	flags.StringVar(&cfg.run, "run", "", "`ID` of the batch of events: letters, digits, _ and - (default: a new one)")
	flags.IntVar(&cfg.events, "events", 100, "`number` of events")

	flags.SetOutput(io.Discard)

	if err := flags.Parse(args); err != nil {
		flags.SetOutput(stderr)

		if errors.Is(err, flag.ErrHelp) {
			flags.Usage()
		}

		return cfg, err
	}

	known, ok := brokers[cfg.broker]

	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !ok:
		return cfg, fmt.Errorf("-broker %q: must be one of %s", cfg.broker, brokerNames())
	case cfg.broker == "gochannel" && cfg.addr != "":
		return cfg, errors.New("-broker-addr: gochannel is inside of this program and has no address")
	case cfg.events < 1:
		return cfg, fmt.Errorf("-events %d: must be positive", cfg.events)
	case cfg.run == "":
		cfg.run = watermill.NewShortUUID()
	case !runPattern.MatchString(cfg.run):
		return cfg, fmt.Errorf("-run %q: must be 1 to 32 letters, digits, _ and -", cfg.run)
	}

	switch {
	case cfg.addr != "":
	case cfg.broker == "sql":
		cfg.addr = cfg.dsn
	default:
		cfg.addr = known.defaultAddr
	}

	return cfg, nil
}

// handleEverything publishes, waits until all is handled, and prints what became of it.
func handleEverything(ctx context.Context, cfg config, stdout, stderr io.Writer) (_ *result, err error) {
	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})))

	db, err := openDatabase(ctx, cfg.dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	b, err := openBroker(ctx, cfg.broker, cfg.addr, cfg.topic(), logger)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	fmt.Fprintf(stdout, "run %s on %s: %d events, each published twice\n", cfg.run, cfg.broker, cfg.events)

	before, err := readResult(ctx, db, cfg.run)
	if err != nil {
		return nil, err
	}

	orders := ordersOf(cfg)
	if err := recordEvents(ctx, db, orders); err != nil {
		return nil, err
	}

	err = withService(ctx, cfg, db, b, logger, func() error {
		messageUUIDs, err := publishTwice(b.publisher, cfg.topic(), orders)
		if err != nil {
			return err
		}

		return awaitHandled(ctx, cfg, db, messageUUIDs)
	})
	if err != nil {
		return nil, err
	}

	r, err := readResult(ctx, db, cfg.run)
	if err != nil {
		return nil, err
	}

	fmt.Fprintf(stdout, "  events     %6d\n", r.events)
	fmt.Fprintf(stdout, "  deliveries %6d  %d this time; in all: %s\n", r.deliveries, r.deliveries-before.deliveries, r.perBroker)
	fmt.Fprintf(stdout, "  charges    %6d  %d this time\n", r.charges, r.charges-before.charges)
	fmt.Fprintf(stdout, "  doubled    %6d\n", r.doubled)
	fmt.Fprintf(stdout, "  missing    %6d\n", r.missing)

	return r, nil
}
