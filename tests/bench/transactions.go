package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/watermill-inbox/inbox"
)

const transactionsLegend = `
floor        the handler in a transaction of its own, no inbox
+ statement  the floor with an empty statement before the handler's: the price of one more round trip
textbook     INSERT into an inbox with a text key, handler, UPDATE to "processed"
inbox        this library; each event is new
duplicate    this library; each event was handled before, so there is nothing to do but to find out
`

const ddl = `
CREATE SCHEMA bench;
CREATE TABLE bench.charges (order_id text NOT NULL, amount integer NOT NULL);
CREATE TABLE bench.textbook (
	consumer     text NOT NULL,
	source       text NOT NULL,
	event_id     text NOT NULL,
	received_at  timestamptz NOT NULL DEFAULT now(),
	processed_at timestamptz,
	PRIMARY KEY (consumer, source, event_id)
)`

// transactions compares handlers with and without an inbox. Each does the same work, one INSERT through its transaction.
func transactions(ctx context.Context, b bench) error {
	for _, driver := range b.drivers {
		db, err := b.open(driver)
		if err != nil {
			return err
		}
		defer db.Close()

		handlers, err := newHandlers(ctx, db)
		if err != nil {
			return err
		}

		for _, flight := range b.flights {
			db.SetMaxIdleConns(flight)

			c := comparison{
				title: fmt.Sprintf("%s, %d in flight", driver, flight),
				reset: func(ctx context.Context) error {
					_, err := db.ExecContext(ctx, `TRUNCATE bench.charges, bench.textbook`)

					return err
				},
			}
			for _, h := range handlers {
				c.variants = append(c.variants, variant{name: h.name, run: each(flight, b.duration, h.handle)})
			}

			if _, err := b.compare(ctx, c); err != nil {
				return err
			}
		}
	}

	fmt.Print(transactionsLegend)

	return nil
}

type handler struct {
	name   string
	handle func(ctx context.Context, id string) error
}

func newHandlers(ctx context.Context, db *sql.DB) ([]handler, error) {
	for _, statement := range append([]string{"DROP SCHEMA IF EXISTS bench CASCADE"}, strings.Split(ddl, ";\n")...) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}

	ib, err := inbox.New(db, inbox.Postgres, inbox.WithTable("bench.inbox"),
		inbox.WithConsumer(func(*message.Message) string { return "billing" }),
		inbox.WithSource(func(*message.Message) string { return "orders" }))
	if err != nil {
		return nil, err
	}

	if err := ib.Migrate(ctx); err != nil {
		return nil, err
	}

	middleware := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := inbox.TxFromContext(msg.Context())

		return nil, charge(msg.Context(), tx, msg.UUID)
	})
	deliver := func(_ context.Context, id string) error {
		_, err := middleware(message.NewMessage(id, nil))

		return err
	}

	// The claim's counterpart in price: prepared, like the claim.
	empty, err := db.PrepareContext(ctx, "SELECT $1::text")
	if err != nil {
		return nil, err
	}

	known := uuid.Must(uuid.NewV7()).String()

	return []handler{
		{"floor", inTx(db, charge)},
		{"+ statement", inTx(db, func(ctx context.Context, tx *sql.Tx, id string) error {
			_, err := tx.StmtContext(ctx, empty).ExecContext(ctx, id) //nolint:sqlclosecheck // closed with the transaction
			if err != nil {
				return err
			}

			return charge(ctx, tx, id)
		})},
		{"textbook", inTx(db, textbook)},
		{"inbox", deliver},
		{"duplicate", func(ctx context.Context, _ string) error { return deliver(ctx, known) }},
	}, nil
}

// charge is the work that every handler does.
func charge(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO bench.charges (order_id, amount) VALUES ($1, $2)`, id, 4711)

	return err
}

func textbook(ctx context.Context, tx *sql.Tx, id string) error {
	res, err := tx.ExecContext(ctx, `INSERT INTO bench.textbook (consumer, source, event_id) VALUES ($1, $2, $3)
		ON CONFLICT DO NOTHING`, "billing", "orders", id)
	if err != nil {
		return err
	}

	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}

	if err := charge(ctx, tx, id); err != nil {
		return err
	}

	_, err = tx.ExecContext(ctx, `UPDATE bench.textbook SET processed_at = now()
		WHERE consumer = $1 AND source = $2 AND event_id = $3`, "billing", "orders", id)

	return err
}

func inTx(db *sql.DB, fn func(context.Context, *sql.Tx, string) error) func(context.Context, string) error {
	return func(ctx context.Context, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("beginning: %w", err)
		}
		defer tx.Rollback() //nolint:errcheck // does nothing after the commit

		if err := fn(ctx, tx, id); err != nil {
			return err
		}

		return tx.Commit()
	}
}
