package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

type sqlite struct{}

func (sqlite) name() string          { return "sqlite" }
func (sqlite) bindDriver() string    { return "sqlite3" }
func (sqlite) defaultSchema() string { return "main" }
func (sqlite) keyArg(k Key) any      { return k[:] }

// supports every level that there is, since all transactions of SQLite's are serializable.
func (sqlite) supports(level sql.IsolationLevel) bool {
	return level >= sql.LevelDefault && level <= sql.LevelLinearizable
}

func (sqlite) queries(t tables, _ time.Duration) queries {
	return queries{
		claim: fmt.Sprintf(`INSERT INTO %s (key, consumer, source, event_id, event_type, processed_at)
			VALUES (?1, ?2, ?3, ?4, ?5, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')) ON CONFLICT (key) DO NOTHING`, t.ledger),
		storeOutputs: fmt.Sprintf(`INSERT INTO %s (key, messages) SELECT key, ?2 FROM %s WHERE key = ?1
			ON CONFLICT (key) DO UPDATE SET messages = excluded.messages`, t.outputs, t.ledger),
		known:        fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s WHERE key = ?1 AND processed_at IS NOT NULL)`, t.ledger),
		loadOutputs:  fmt.Sprintf(`SELECT messages FROM %s WHERE key = ?1`, t.outputs),
		forget:       fmt.Sprintf(`DELETE FROM %s WHERE key = ?1`, t.ledger),
		forgetOutput: fmt.Sprintf(`DELETE FROM %s WHERE key = ?1`, t.outputs),

		createMigrations: fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
    version    INTEGER   PRIMARY KEY,
    applied_at TIMESTAMP NOT NULL DEFAULT (strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'))
)`, t.migrations),
		listMigrations:  fmt.Sprintf(`SELECT version FROM %s`, t.migrations),
		recordMigration: fmt.Sprintf(`INSERT INTO %s (version) VALUES (%%d) ON CONFLICT (version) DO NOTHING`, t.migrations),
		probes: []string{
			fmt.Sprintf(`EXPLAIN INSERT INTO %s (key, received_at, processed_at, consumer, source, event_id, event_type)
				VALUES (x'', '', '', '', '', '', '') ON CONFLICT (key) DO NOTHING`, t.ledger),
			fmt.Sprintf(`EXPLAIN INSERT INTO %s (key, messages) VALUES (x'', x'') ON CONFLICT (key) DO NOTHING`, t.outputs),
		},
	}
}

// defaultBusyTimeout is what mattn/go-sqlite3 and Python's sqlite3 module use as well.
const defaultBusyTimeout = 5 * time.Second

// limitLockWait sets the connection's busy_timeout: to d for the claim alone when it is positive, else to
// defaultBusyTimeout for good where it is 0, since SQLite then fails at once instead of waiting for the other writer.
func (e sqlite) limitLockWait(ctx context.Context, tx *sql.Tx, d time.Duration) (func() error, error) {
	var milliseconds int64
	if err := tx.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&milliseconds); err != nil {
		return nil, err
	}

	before := time.Duration(milliseconds) * time.Millisecond
	if before == 0 {
		before = defaultBusyTimeout

		if err := e.setBusyTimeout(ctx, tx, before); err != nil {
			return nil, err
		}
	}

	if d == 0 {
		return func() error { return nil }, nil
	}

	return func() error { return e.setBusyTimeout(ctx, tx, before) }, e.setBusyTimeout(ctx, tx, d)
}

// inClaim reads the row back, which costs next to nothing in the same process.
func (e sqlite) inClaim(ctx context.Context, _ *sql.Conn, tx *sql.Tx, q queries, k Key) (open bool, err error) {
	err = tx.QueryRowContext(ctx, q.known, e.keyArg(k)).Scan(&open)

	return open, err
}

func (sqlite) setBusyTimeout(ctx context.Context, tx *sql.Tx, d time.Duration) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, d.Milliseconds()))

	return err
}

// Primary result codes, https://www.sqlite.org/rescode.html.
const (
	sqliteGeneric = 1
	sqliteBusy    = 5
	sqliteLocked  = 6
)

// sqliteCode returns the primary result code, which is the low byte of an extended one, or 0.
func sqliteCode(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}

	return 0
}

func (sqlite) isTransient(err error) bool {
	code := sqliteCode(err)

	return code == sqliteBusy || code == sqliteLocked
}

func (e sqlite) isLockTimeout(err error) bool { return e.isTransient(err) }

// isMissingTable asks the database, because SQLite has no result code for it. A database whose newest migration is
// missing counts as well.
func (e sqlite) isMissingTable(ctx context.Context, db querier, t tables, err error) bool {
	if sqliteCode(err) != sqliteGeneric {
		return false
	}

	for _, t := range []table{t.ledger, t.outputs} {
		if exists, err := e.exists(ctx, db, t); err == nil && !exists {
			return true
		}
	}

	return false
}

// lockMigrations has nothing to do: SQLite has one writer, and a transaction that cannot become it is run again.
func (sqlite) lockMigrations(context.Context, *sql.Tx) error { return nil }

func (sqlite) exists(ctx context.Context, db querier, t table) (exists bool, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s.sqlite_master
		WHERE type = 'table' AND name = ?1 COLLATE NOCASE)`, quote(t.schema)), t.name).Scan(&exists)

	return exists, err
}

// ensureSchema has nothing to do: a schema of SQLite's is an attached database.
func (sqlite) ensureSchema(context.Context, *sql.Tx, string) error { return nil }

func (sqlite) schemaDDL(string) string { return "" }
