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
	// listArgs returns a list of rows, given by columns of equal length, as the arguments of a statement that takes a list.
	listArgs(columns ...column) []any
	// oneWriter reports that transactions which write had better wait for each other outside of the database.
	oneWriter() bool
	// waitForLocks has a transaction of the inbox's own wait for others.
	waitForLocks(ctx context.Context, tx *sql.Tx) error
	// isolation is that of the inbox's own transactions.
	isolation() sql.IsolationLevel
	// limitLockWait is called right before a claim and its result right after, for an engine whose claim statement
	// does not bound its wait by itself.
	limitLockWait(ctx context.Context, tx *sql.Tx, d time.Duration) (restore func() error, err error)

	// inClaim reports whether tx, on conn, is still the transaction in which the key was claimed, as far as the engine can
	// tell that without a round trip.
	inClaim(ctx context.Context, conn *sql.Conn, tx *sql.Tx, q queries, k Key) (bool, error)

	// isTransient reports a serialization failure, a deadlock or a busy database: the transaction is gone and may
	// succeed when it is run again.
	isTransient(err error) bool
	// isOutage reports that the server could not do its work, for reasons that lie outside of the statement.
	isOutage(err error) bool
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

// batch returns the statements that run often, outside of handlers' transactions.
func (q *queries) batch() []string {
	statements := append([]string{
		q.storeEvents, q.strays, q.storeMessages, q.lease, q.renew, q.held, q.published, q.release, q.promote,
	}, q.finish...)
	for _, optional := range []string{q.planLookups, q.lockLanes, q.clock} {
		if optional != "" {
			statements = append(statements, optional)
		}
	}

	return statements
}

// column is a column of a list, in a form that every engine can read: numbers in decimal, bytes in hex, and "" for NULL
// where that is allowed. Statements get either of "" and NULL for the other.
type column []string

// queries are an engine's statements for one set of tables. A list stands for the arguments that listArgs makes of it. Keys are
// returned in their 16 bytes, one or more of them in a row.
type queries struct {
	claim        string // key, consumer, source, event id, event type
	known        string // key
	storeOutputs string // key, encoded messages; writes only when the ledger has the key
	loadOutputs  string // key
	forget       string // key
	forgetOutput string // key

	// Stored messages. Durations are milliseconds, and all clocks are the database's.
	planLookups   string   // first in each transaction, leaves the planner nothing but index lookups; "" where it needs no telling
	storeEvents   string   // consumer, list of key, source, event id, event type; returns keys that were new
	strays        string   // list of key; returns keys of known events that need a hand-out: no message stored, or outputs left over
	storeMessages string   // queue, owner, duration, messages in one piece, list of key, lane, lease, start from 1, size
	lease         string   // queue, owner, duration, lease, limit, place; returns leased messages, see repository.claimDue
	clock         string   // returns the time of the transaction, as in places; "" where there is one place only
	renew         string   // owner, duration, list of key, lease; returns keys that were renewed
	held          string   // owner, list of key, lease; returns keys that are leased by the owner, expired or not
	hold          string   // key, owner, lease; marks the event processed and locks its message while the lease is the owner's
	stillHeld     string   // key, owner, lease; whether it is, and its event is processed
	finish        []string // owner, list of key, lease; the first returns keys that were finished, the others follow it
	published     string   // list of key; removes outputs
	release       string   // owner, list of key, lease, fate, delay, error; returns keys that were released
	lockLanes     string   // list of lock; "" where nothing needs locking
	promote       string   // list of lane; makes the first message of each due where none is
	parkActive    string   // list of lane; the reverse, where no lease is in the way
	takeMessage   string   // key; has nobody lease the message of an unfinished event, if it is due, not locked and in no lane
	takeEvent     string   // key, whether its message was taken; marks an unfinished event processed, if there is no other message
	forgetMessage string   // key

	// Failures in same-transaction mode, and dead letters.
	countFailure  string   // key; returns the attempts that failed, this one included
	countAttempt  string   // key; the same, unless the event is processed, dead or leased
	uncount       []string // key
	forgetFailure string   // key
	sweepFailures string   // forgets some that were handled since, or are a month old
	buryEvent     string   // key, consumer, source, event id, event type
	buryMessage   string   // key, queue, attempts, error, message; writes only when the event is not processed, nor dead, nor leased
	isDead        string   // key
	lanesOf       string   // list of key; returns lanes
	requeue       string   // list of key; returns keys
	discard       []string // list of key; the first returns keys, the others follow it
	listDead      string   // limit; returns entries, see repository.entries
	listStale     string   // age, limit; the same
	stats         string   // returns consumer, received, leased, waiting, dead, age of the oldest

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
