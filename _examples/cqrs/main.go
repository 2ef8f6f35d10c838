// Command cqrs shows the inbox under Watermill's CQRS component, with nothing to install: the in-memory Pub/Sub is the
// broker and a SQLite file the database.
//
//	go run . [-orders N] [-db FILE]
//
// A command handler places orders; a group of two event handlers takes the payment and reserves the stock for each
// order, both or neither. Every command and every event is delivered twice, and the second handler of the group fails
// the first time. In the end the database tells what happened. The exit code is 0, or 1 when something is missing or
// doubled, or 2 when the program could not do its work.
//
// Start reading in handlers.go, then service.go, where the inbox is added.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"
)

// Nothing in these tables is unique: a second run of a handler would be a second row.
const tables = `
CREATE TABLE IF NOT EXISTS orders       (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS payments     (order_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS reservations (order_id TEXT NOT NULL);`

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("cqrs", flag.ContinueOnError)
	flags.SetOutput(stderr)

	n := flags.Int("orders", 50, "how many `orders` to place")
	file := flags.String("db", "", "keep the SQLite database in this `file` (default: a temporary one)")

	if err := flags.Parse(args); err != nil {
		return 2
	}

	ok, err := demonstrate(ctx, *file, *n, stdout)

	switch {
	case err != nil:
		fmt.Fprintln(stderr, "cqrs:", err)

		return 2
	case !ok:
		return 1
	default:
		return 0
	}
}

func demonstrate(ctx context.Context, file string, orders int, stdout io.Writer) (ok bool, err error) {
	if file == "" {
		dir, err := os.MkdirTemp("", "cqrs-")
		if err != nil {
			return false, err
		}
		defer os.RemoveAll(dir)

		file = filepath.Join(dir, "cqrs.db")
	}

	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	if _, err := db.ExecContext(ctx, tables); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}

	s, err := startService(ctx, db)
	if err != nil {
		return false, err
	}

	for i := range 2 * orders {
		if err := s.send(ctx, placeOrder{Order: fmt.Sprintf("order-%d", 1+i/2)}); err != nil {
			return false, errors.Join(err, s.stop())
		}
	}

	s.eventsHandled.Wait()

	if err := s.stop(); err != nil {
		return false, err
	}

	return report(ctx, db, s, orders, stdout)
}

// report tells whether each order has exactly one of everything.
func report(ctx context.Context, db *sql.DB, s *service, orders int, stdout io.Writer) (bool, error) {
	fmt.Fprintf(stdout, "%d commands sent, %d events delivered; handlers ran %d times, of which %d failed\n",
		2*orders, s.events.Load(), s.runs.Load(), s.failures.Load())

	ok := true

	for _, column := range []string{"orders.id", "payments.order_id", "reservations.order_id"} {
		table := column[:len(column)-len(filepath.Ext(column))]

		var rows, distinct int

		err := db.QueryRowContext(ctx, "SELECT count(*), count(DISTINCT "+column+") FROM "+table).Scan(&rows, &distinct)
		if err != nil {
			return false, err
		}

		fmt.Fprintf(stdout, "  %-12s %4d, %d doubled, %d missing\n", table, rows, rows-distinct, orders-distinct)

		ok = ok && rows == orders && distinct == orders
	}

	if ok {
		fmt.Fprintln(stdout, "Kept: each order was placed, paid and reserved once.")
	} else {
		fmt.Fprintln(stdout, "BROKEN.")
	}

	return ok, nil
}
