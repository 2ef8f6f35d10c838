// Package testdb gives each test a database of its own, on every engine and driver that the inbox supports.
package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// Engine is a database with a driver.
type Engine struct {
	Name    string
	Driver  string
	Dialect inbox.Dialect
}

// The engines that the conformance suite runs on.
var (
	PQ     = Engine{"postgres_pq", "postgres", inbox.Postgres}
	PGX    = Engine{"postgres_pgx", "pgx", inbox.Postgres}
	SQLite = Engine{"sqlite", "sqlite", inbox.SQLite}

	All = []Engine{PQ, PGX, SQLite}
)

// DB is a database that only one test uses.
type DB struct {
	*sql.DB
	Engine Engine
	// DSN opens the same database again, in this process or another.
	DSN string
	// Schema is where the test's tables are: "main" on SQLite.
	Schema string
}

// Table qualifies and quotes a name.
func (db *DB) Table(name string) string { return fmt.Sprintf(`"%s"."%s"`, db.Schema, name) }

// Inbox is the argument for inbox.WithTable.
func (db *DB) Inbox() string { return db.Schema + ".inbox" }

var serial atomic.Int64

// Open returns a new schema on PostgreSQL, or a new SQLite file, that goes away with the test.
func Open(t testing.TB, e Engine) *DB {
	t.Helper()

	if e.Dialect == inbox.SQLite {
		file := filepath.Join(t.TempDir(), "test.db")

		return open(t, e, "file:"+file+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)", "main")
	}

	dsn, err := servers.FromEnv("postgres")
	if err != nil {
		t.Fatal(err)
	}

	return OpenOn(t, e, dsn)
}

// OpenOn is Open for a PostgreSQL server that the test started for itself.
func OpenOn(t testing.TB, e Engine, dsn string) *DB {
	t.Helper()

	schema := fmt.Sprintf("test_%x_%d", time.Now().UnixNano(), serial.Add(1))
	db := open(t, e, dsn, schema)
	db.Exec(t, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Errorf("dropping schema: %v", err)
		}
	})

	return db
}

func open(t testing.TB, e Engine, dsn, schema string) *DB {
	t.Helper()

	db, err := sql.Open(e.Driver, dsn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { db.Close() })

	return &DB{DB: db, Engine: e, DSN: dsn, Schema: schema}
}

// Exec runs a statement that must succeed.
func (db *DB) Exec(t testing.TB, query string, args ...any) {
	t.Helper()

	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// Int returns the single number that a query yields.
func (db *DB) Int(t testing.TB, query string, args ...any) (n int) {
	t.Helper()

	if err := db.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}

	return n
}

// New returns a migrated inbox on this database, in the table of DB.Inbox.
func (db *DB) New(t testing.TB, opts ...inbox.Option) *inbox.Inbox {
	t.Helper()

	ib, err := inbox.New(db.DB, db.Engine.Dialect, append([]inbox.Option{inbox.WithTable(db.Inbox())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}

	if err := ib.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}

	return ib
}

// EffectsTable makes a table (event text, note text) for handlers to write their effects to, and returns its name for
// use in statements. Nothing in it is unique: a doubled effect is a second row.
func (db *DB) EffectsTable(t testing.TB) string {
	t.Helper()

	name := db.Table("effects")
	db.Exec(t, "CREATE TABLE "+name+" (event text NOT NULL, note text NOT NULL DEFAULT '')")

	return name
}

// Effects counts rows of the effects table per event.
func (db *DB) Effects(t testing.TB) map[string]int {
	t.Helper()

	rows, err := db.QueryContext(context.Background(), "SELECT event, count(*) FROM "+db.Table("effects")+" GROUP BY event")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()

	counts := make(map[string]int)

	for rows.Next() {
		var (
			event string
			n     int
		)
		if err := rows.Scan(&event, &n); err != nil {
			t.Fatal(err)
		}

		counts[event] = n
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return counts
}

// RequireOnce fails unless exactly these events have exactly one effect each.
func (db *DB) RequireOnce(t testing.TB, events ...string) {
	t.Helper()

	counts := db.Effects(t)

	var wrong []string
	for _, event := range events {
		if counts[event] != 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %d", event, counts[event]))
		}

		delete(counts, event)
	}

	for event, n := range counts {
		wrong = append(wrong, fmt.Sprintf("unexpected %s: %d", event, n))
	}

	if len(wrong) > 0 {
		t.Fatalf("effects that are not exactly one: %s", strings.Join(wrong, ", "))
	}
}
