package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/lib/pq"
)

const defaultDSN = "postgres://postgres@localhost:5432/postgres?sslmode=disable"

// tables is everything that the example keeps, the inbox included, in a schema that one can drop.
const tables = `
SELECT pg_advisory_xact_lock(hashtext('brokers_example')); -- IF NOT EXISTS alone is not safe from others doing the same
CREATE SCHEMA IF NOT EXISTS brokers_example;
CREATE TABLE IF NOT EXISTS brokers_example.events (
	run      text NOT NULL,
	order_id text NOT NULL,
	PRIMARY KEY (run, order_id)
);
CREATE TABLE IF NOT EXISTS brokers_example.charges (
	run      text   NOT NULL,
	order_id text   NOT NULL,
	customer text   NOT NULL,
	cents    bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS brokers_example.deliveries (
	run     text NOT NULL,
	broker  text NOT NULL,
	message text NOT NULL
);`

const inboxTable = "brokers_example.inbox"

func openDatabase(ctx context.Context, dsn string) (*sql.DB, error) {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}

	if _, err := db.ExecContext(ctx, tables); err != nil { // several statements in one text are one transaction
		return nil, errors.Join(fmt.Errorf("-db: %w", err), db.Close())
	}

	return db, nil
}

func recordEvents(ctx context.Context, db *sql.DB, orders []orderPlaced) error {
	runs, ids := make([]string, len(orders)), make([]string, len(orders))
	for i, order := range orders {
		runs[i], ids[i] = order.Run, order.OrderID
	}

	_, err := db.ExecContext(ctx, `INSERT INTO brokers_example.events (run, order_id)
		SELECT * FROM unnest($1::text[], $2::text[]) ON CONFLICT DO NOTHING`, pq.Array(runs), pq.Array(ids))

	return err
}

// recordDeliveries is the outermost middleware. It counts what was handled, in no transaction of the inbox's.
func recordDeliveries(db *sql.DB, broker string) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := h(msg)
			if err != nil {
				return nil, err
			}

			_, err = db.ExecContext(context.WithoutCancel(msg.Context()), `INSERT INTO brokers_example.deliveries (run, broker, message)
				VALUES ($1, $2, $3)`, msg.Metadata.Get(runKey), broker, msg.UUID)

			return outputs, err
		}
	}
}

// handledOf counts how many of these messages were handled.
func handledOf(ctx context.Context, db *sql.DB, run string, messageUUIDs []string) (n int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(DISTINCT message) FROM brokers_example.deliveries
		WHERE run = $1 AND message = ANY($2)`, run, pq.Array(messageUUIDs)).Scan(&n)

	return n, err
}

// result is what the database says about a run.
type result struct {
	events, deliveries, charges, doubled, missing int
	perBroker                                     string
}

func readResult(ctx context.Context, db *sql.DB, run string) (*result, error) {
	var (
		r         result
		perBroker []string
	)

	err := db.QueryRowContext(ctx, `
		WITH outcome AS (
			SELECT (SELECT count(*) FROM brokers_example.charges AS c WHERE c.run = e.run AND c.order_id = e.order_id) AS charges
			FROM brokers_example.events AS e WHERE e.run = $1
		)
		SELECT count(*), coalesce(sum(charges), 0),
			count(*) FILTER (WHERE charges > 1),
			count(*) FILTER (WHERE charges = 0),
			(SELECT count(*) FROM brokers_example.deliveries WHERE run = $1),
			ARRAY(SELECT broker || ' ' || count(*) FROM brokers_example.deliveries WHERE run = $1 GROUP BY broker ORDER BY broker)
		FROM outcome`, run).Scan(&r.events, &r.charges, &r.doubled, &r.missing, &r.deliveries, pq.Array(&perBroker))
	r.perBroker = strings.Join(perBroker, ", ")

	return &r, err
}
