// Bench measures what an inbox costs: handlers with and without one, on a PostgreSQL that it starts itself.
//
//	go run ./bench [-rounds 5] [-duration 1s] [-flight 1,16] [-drivers pq,pgx]
//
// Every handler does the same work, one INSERT through its transaction. The variants take turns inside each round, in
// an order that rotates from round to round, and ratios are taken inside a round, because the speed of a shared machine
// drifts. What counts is the median ratio to the floor and its spread; the rates only give an idea of the scale.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/inbox/tests/servers"
)

var sqlDrivers = map[string]string{"pq": "postgres", "pgx": "pgx"}

type settings struct {
	rounds   int
	duration time.Duration
	flights  []int
	drivers  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	set, err := parse(os.Args[1:])
	if err == nil {
		err = bench(ctx, set)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	var (
		set   settings
		flags = flag.NewFlagSet("bench", flag.ExitOnError)
	)

	flags.IntVar(&set.rounds, "rounds", 5, "rounds to take the median of")
	flags.DurationVar(&set.duration, "duration", time.Second, "of one variant in one round")
	flight := flags.String("flight", "1,16", "how many messages are in flight at once")
	drivers := flags.String("drivers", "pq,pgx", "database/sql drivers")

	if err := flags.Parse(args); err != nil {
		return set, err
	}

	if set.rounds < 1 || set.duration <= 0 {
		return set, fmt.Errorf("-rounds %d and -duration %s must be positive", set.rounds, set.duration)
	}

	for s := range strings.SplitSeq(*flight, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return set, fmt.Errorf("-flight %q: want positive numbers with commas between them", *flight)
		}

		set.flights = append(set.flights, n)
	}

	set.drivers = strings.Split(*drivers, ",")
	for _, driver := range set.drivers {
		if sqlDrivers[driver] == "" {
			return set, fmt.Errorf("-drivers %q: want pq or pgx", *drivers)
		}
	}

	return set, nil
}

func bench(ctx context.Context, set settings) (err error) {
	if err := servers.Ensure(ctx, os.Stdout, "postgres"); err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "inbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	if err := os.Chmod(dir, 0o755); err != nil { // the server may run as another user
		return err
	}

	server := servers.NewPostgres(dir)
	if err := server.Start(ctx); err != nil {
		return err
	}
	defer func() { err = firstOf(err, server.Stop(context.WithoutCancel(ctx))) }()

	fmt.Printf("PostgreSQL with fsync on; one INSERT by each handler; %d rounds of %s\n", set.rounds, set.duration)

	for _, driver := range set.drivers {
		db, err := sql.Open(sqlDrivers[driver], server.Addr())
		if err != nil {
			return err
		}
		defer db.Close()

		variants, err := newVariants(ctx, db)
		if err != nil {
			return err
		}

		for _, flight := range set.flights {
			db.SetMaxIdleConns(flight)

			results, err := measure(ctx, db, set, flight, variants)
			if err != nil {
				return err
			}

			fmt.Printf("\n%s, %d in flight\n%s", driver, flight, table(variants, results))
		}
	}

	fmt.Print(legend)

	return nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}
