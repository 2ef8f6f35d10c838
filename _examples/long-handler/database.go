package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"github.com/ThreeDotsLabs/watermill"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
)

// The table has no unique constraint: a second run of the transaction for one order would show.
const tables = `CREATE TABLE IF NOT EXISTS sent (order_id TEXT NOT NULL, mail_id TEXT NOT NULL)`

func openInbox(ctx context.Context, file string, logger watermill.LoggerAdapter) (*sql.DB, *inbox.Inbox, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		return nil, nil, err
	}

	ib, err := prepare(ctx, db, logger)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", file, err), db.Close())
	}

	return db, ib, nil
}

func prepare(ctx context.Context, db *sql.DB, logger watermill.LoggerAdapter) (*inbox.Inbox, error) {
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, err
	}

	ib, err := inbox.New(db, inbox.SQLite, inbox.WithLogger(logger))
	if err != nil {
		return nil, err
	}

	return ib, ib.Migrate(ctx)
}
