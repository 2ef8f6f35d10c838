// Command outbox-inbox shows an outbox and an inbox at the two ends of a broker, and the moment they are for:
//
//	go run . [-db DSN] [-broker rabbitmq|kafka] [-broker-addr ADDR] [-orders N] [-keep]
//
// It starts three services as processes of their own:
//
//	producer  places orders: a row in its table and an event in its outbox, in one transaction
//	relay     publishes what is in the outbox (Watermill's forwarder), and marks it as published
//	consumer  charges for each order and writes an invoice into an outbox of its own, behind the inbox
//
// The relay is killed between publish and mark, twice, so its successors publish some events again. The consumer is
// killed between commit and ack, so the broker delivers an event again. In the end a table, read from the database, tells
// how often each order was charged. The exit code is 0, or 1 when an order was charged or invoiced never or several
// times, or 2 when the program could not do its work.
//
// Each run has a schema, outbox_inbox_ID, which is dropped at the end unless -keep is set, and a topic, orders-ID.
//
// Start reading in producer.go, relay.go and consumer.go. demonstration.go starts and kills them, report.go reads the
// table.
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
	"strconv"
	"strings"
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
	dsn, broker, addr string
	orders            int
	keep              bool
	patience          time.Duration

	// What a service is told by the demonstration, in variables of its environment.
	role  string
	runID string
	hold  int // the n-th message is where it stops and waits to be killed; 0 is never
}

// The variables of a service.
const (
	roleVariable = "OUTBOX_INBOX_ROLE"
	runVariable  = "OUTBOX_INBOX_RUN"
	holdVariable = "OUTBOX_INBOX_HOLD"
)

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

	if err != nil {
		fmt.Fprintln(stderr, "outbox-inbox:", err)

		return exitFailed
	}

	logger := watermill.NewSlogLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))

	if service, ok := services[cfg.role]; ok {
		if err := serve(ctx, cfg, service, stdout, logger); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", cfg.role, err)

			return exitFailed
		}

		return exitKept
	}

	result, err := demonstrate(ctx, cfg, stdout, stderr, logger)
	if err != nil {
		fmt.Fprintln(stderr, "outbox-inbox:", err)

		return exitFailed
	}

	fmt.Fprintln(stdout)
	result.print(stdout)

	if !result.kept() {
		return exitBroken
	}

	return exitKept
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{patience: time.Minute, role: os.Getenv(roleVariable), runID: os.Getenv(runVariable)}
	cfg.hold, _ = strconv.Atoi(os.Getenv(holdVariable)) // not set is never

	if cfg.runID == "" {
		cfg.runID = strings.ToLower(watermill.NewShortUUID())
	}

	flags := flag.NewFlagSet("outbox-inbox", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.dsn, "db", "postgres://postgres@localhost:5432/postgres?sslmode=disable", "PostgreSQL `DSN`")
	flags.StringVar(&cfg.broker, "broker", "rabbitmq", "`name` of the broker: rabbitmq or kafka")
	flags.StringVar(&cfg.addr, "broker-addr", "", "`address` of the broker (default: on this machine)")
	flags.IntVar(&cfg.orders, "orders", 60, "`number` of orders, at least 20")
	flags.BoolVar(&cfg.keep, "keep", false, "keep the schema")

	if err := flags.Parse(args); err != nil {
		return cfg, err
	}

	broker, known := brokers[cfg.broker]

	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !known:
		return cfg, fmt.Errorf("-broker %q: must be rabbitmq or kafka", cfg.broker)
	case cfg.orders < relayHolds[1]+relayBatch/2:
		return cfg, fmt.Errorf("-orders %d: must be at least %d", cfg.orders, relayHolds[1]+relayBatch/2)
	}

	if cfg.addr == "" {
		cfg.addr = broker.defaultAddr
	}

	return cfg, nil
}

// ordersTopic is one of the run's own, so that no other run takes its messages.
func (c config) ordersTopic() string { return "orders-" + c.runID }

func (c config) schema() string { return "outbox_inbox_" + c.runID }
