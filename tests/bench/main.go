// Bench measures what an inbox costs and what it gains, on a PostgreSQL that it starts itself.
//
//	go run ./bench [-group transactions,stored] [-rounds 5] [-duration 1s] [-flight 1,16] [-drivers pq,pgx]
//
// The group "transactions" compares handlers with and without an inbox, and "stored" compares store-then-process with what
// a user would take instead: River, and a multi-row INSERT written by hand. The variants take turns inside each round, in
// an order that rotates from round to round, and ratios are taken inside a round, because the speed of a shared machine
// drifts. What counts is the median ratio to the first variant and its spread; the rates only give an idea of the scale.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/inbox/tests/servers"
)

var sqlDrivers = map[string]string{"pq": "postgres", "pgx": "pgx"}

var groups = []struct {
	name string
	run  func(ctx context.Context, b bench) error
}{
	{"transactions", transactions},
	{"stored", stored},
}

type settings struct {
	groups   []string
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
		err = run(ctx, set)
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

	group := flags.String("group", "transactions,stored", "what to measure")
	flags.IntVar(&set.rounds, "rounds", 5, "rounds to take the median of")
	flags.DurationVar(&set.duration, "duration", time.Second, "of one variant in one round")
	flight := flags.String("flight", "1,16", "how many messages are in flight at once in the group \"transactions\"")
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

	set.groups = strings.Split(*group, ",")
	for _, name := range set.groups {
		if name != groups[0].name && name != groups[1].name {
			return set, fmt.Errorf("-group %q: want transactions or stored", *group)
		}
	}

	return set, nil
}

func run(ctx context.Context, set settings) (err error) {
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

	b := bench{settings: set, addr: server.Addr()}

	db, err := b.open("pgx")
	if err != nil {
		return err
	}
	defer db.Close()

	if b.meter, err = newMeter(ctx, db); err != nil {
		return err
	}

	fmt.Printf("PostgreSQL with fsync on, and %d processors for it and for this program; %d rounds of %s\n",
		runtime.NumCPU(), set.rounds, set.duration)

	for _, group := range groups {
		if !slices.Contains(set.groups, group.name) {
			continue
		}

		if err := group.run(ctx, b); err != nil {
			return err
		}
	}

	return nil
}

// bench is what all groups share.
type bench struct {
	settings

	addr  string
	meter *meter
}

func (b bench) open(driver string) (*sql.DB, error) {
	return sql.Open(sqlDrivers[driver], b.addr)
}

// compare measures and prints.
func (b bench) compare(ctx context.Context, c comparison) ([][]sample, error) {
	samples, err := c.measure(ctx, b.meter, b.rounds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.title, err)
	}

	fmt.Print(c.table(samples))

	return samples, nil
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}

	return nil
}
