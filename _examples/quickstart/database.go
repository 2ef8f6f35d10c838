package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "modernc.org/sqlite"
)

// The inbox's own tables are made by Inbox.Migrate.
const tables = `
CREATE TABLE IF NOT EXISTS events (
	source   TEXT    NOT NULL,
	event_id TEXT    NOT NULL,
	customer TEXT    NOT NULL,
	cents    INTEGER NOT NULL,
	PRIMARY KEY (source, event_id)
);
CREATE TABLE IF NOT EXISTS charges (
	source   TEXT    NOT NULL,
	event_id TEXT    NOT NULL,
	customer TEXT    NOT NULL,
	cents    INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS charges_by_event ON charges (source, event_id); -- for the report; not unique
CREATE TABLE IF NOT EXISTS receipts (
	uuid     TEXT PRIMARY KEY,
	source   TEXT NOT NULL,
	event_id TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS receipts_by_event ON receipts (source, event_id);
CREATE TABLE IF NOT EXISTS counters (
	name TEXT    PRIMARY KEY,
	n    INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS mode (
	inbox INTEGER NOT NULL
);`

func openDatabase(ctx context.Context, file string) (*sql.DB, error) {
	const connections = 8

	dsn := "file:" + (&url.URL{Path: file}).EscapedPath() +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)"

	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}

	db.SetMaxOpenConns(connections)

	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", file, err), db.Close())
	}

	return db, nil
}

// prepareDatabase writes down what is going to be delivered.
func prepareDatabase(ctx context.Context, db *sql.DB, withInbox bool, events []orderEvent) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit

	_, err = tx.ExecContext(ctx, `INSERT INTO mode SELECT ? WHERE NOT EXISTS (SELECT 1 FROM mode)`, withInbox)
	if err != nil {
		return err
	}

	var before bool
	if err := tx.QueryRowContext(ctx, `SELECT inbox FROM mode`).Scan(&before); err != nil {
		return err
	}

	if before != withInbox {
		return fmt.Errorf("was made with -inbox=%t: use another file, or the charges of both runs mix", before)
	}

	for _, ev := range events {
		_, err := tx.ExecContext(ctx, `INSERT INTO events (source, event_id, customer, cents) VALUES (?, ?, ?, ?)
			ON CONFLICT (source, event_id) DO NOTHING`, ev.Source, ev.ID, ev.Customer, ev.AmountCents)
		if err != nil {
			return err
		}
	}

	return tx.Commit()
}
