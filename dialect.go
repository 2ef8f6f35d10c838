package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Dialect is a kind of database. The zero value is invalid.
type Dialect uint8

// The databases that an inbox can live in.
const (
	// Postgres is PostgreSQL 12 or newer, through github.com/lib/pq or through the database/sql driver of
	// github.com/jackc/pgx/v5.
	Postgres Dialect = iota + 1
	// SQLite is SQLite 3.35 or newer, through modernc.org/sqlite. It has one writer at a time: transactions wait for
	// each other, up to the connection's busy_timeout, which the inbox sets to 5 s where it is 0.
	SQLite
)

// String returns the dialect's name in lower case.
func (d Dialect) String() string {
	switch d {
	case Postgres:
		return "postgres"
	case SQLite:
		return "sqlite"
	default:
		return fmt.Sprintf("Dialect(%d)", uint8(d))
	}
}

func (d Dialect) engine() (engine, error) {
	switch d {
	case Postgres:
		return postgres{}, nil
	case SQLite:
		return sqlite{}, nil
	default:
		return nil, fmt.Errorf("dialect %s is unknown: use one of the constants, such as inbox.Postgres", d)
	}
}

// engine is all that differs between databases. An implementation is stateless and has its file to itself, with every
// piece of SQL that is sent to that database outside of the migrations.
type engine interface {
	// name is the folder of its migrations below schema.
	name() string
	// bindDriver is a driver name by which sqlx knows the style of its placeholders.
	bindDriver() string
	// defaultSchema is where tables without a schema are.
	defaultSchema() string
	// supports reports whether the engine's drivers accept an isolation level.
	supports(level sql.IsolationLevel) bool
	// queries returns the statements. lockWait, when positive, bounds how long a claim waits for a lock.
	queries(t tables, lockWait time.Duration) queries
	// keyArg returns a key as a statement's argument.
	keyArg(k Key) any
	// limitLockWait is called right before a claim and its result right after, for an engine whose claim statement
	// does not bound its wait by itself.
	limitLockWait(ctx context.Context, tx *sql.Tx, d time.Duration) (restore func() error, err error)

	// inClaim reports whether tx, on conn, is still the transaction in which the key was claimed, as far as the engine can
	// tell that without a round trip.
	inClaim(ctx context.Context, conn *sql.Conn, tx *sql.Tx, q queries, k Key) (bool, error)

	// isTransient reports a serialization failure, a deadlock or a busy database: the transaction is gone and may
	// succeed when it is run again.
	isTransient(err error) bool
	// isLockTimeout reports that a statement gave up waiting for a lock.
	isLockTimeout(err error) bool
	// isMissingTable reports that a statement failed because a table or column of t is not there.
	isMissingTable(ctx context.Context, db querier, t tables, err error) bool

	// lockMigrations keeps other processes from migrating until tx ends.
	lockMigrations(ctx context.Context, tx *sql.Tx) error
	// exists reports whether the table is there.
	exists(ctx context.Context, db querier, t table) (bool, error)
	// ensureSchema creates the schema of the tables when it is missing and the engine can.
	ensureSchema(ctx context.Context, tx *sql.Tx, schema string) error
	// schemaDDL returns the statement that does the same for people who migrate by hand, or "".
	schemaDDL(schema string) string
}

// queries are an engine's statements for one set of tables.
type queries struct {
	claim        string // key, consumer, source, event id, event type
	known        string // key
	storeOutputs string // key, encoded messages; writes only when the ledger has the key
	loadOutputs  string // key
	forget       string // key
	forgetOutput string // key

	createMigrations string
	listMigrations   string
	recordMigration  string   // version
	probes           []string // plans of statements, which fail unless the tables have the columns and keys they need
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// sqlState returns the five-character SQLSTATE of a driver's error, or "". Both lib/pq and pgx provide it.
func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}

	return ""
}
