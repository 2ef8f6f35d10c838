package inboxtest

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite" // the throw-away database

	"github.com/watermill-inbox/inbox"
)

// Env is a database with an inbox in it, for one test at a time.
type Env struct {
	// DB is for the test's tables and for looking at them. Handlers get the transaction from their context instead.
	DB *sql.DB
	// Inbox is what [RequireOnce] and [Deliver] put in front of a handler. Its connections come from the same
	// database as those of DB.
	Inbox *inbox.Inbox

	faults *faults
}

// New returns an inbox on an SQLite database of its own, in a file that goes away with the test. An inbox needs few
// options here: those that tell how events are identified, and [inbox.WithOutbox].
func New(t testing.TB, opts ...inbox.Option) *Env {
	t.Helper()

	dsn := "file:" + (&url.URL{Path: filepath.Join(t.TempDir(), "inbox.db")}).EscapedPath() +
		"?_pragma=journal_mode(wal)&_pragma=synchronous(off)"

	// A handler that writes through DB instead of the transaction waits for itself. Let it find out soon.
	db := open(t, dsn+"&_pragma=busy_timeout(50)")
	patient := open(t, dsn+"&_pragma=busy_timeout(10000)")

	return newEnv(t, db, patient, inbox.SQLite, opts)
}

// NewWith returns an inbox on a database of the caller's, such as a PostgreSQL schema that a test has to itself. The
// inbox's tables are created where [inbox.WithTable] tells and stay there. The pool must allow at least two connections.
func NewWith(t testing.TB, db *sql.DB, dialect inbox.Dialect, opts ...inbox.Option) *Env {
	t.Helper()

	return newEnv(t, db, db, dialect, opts)
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()

	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatalf("inboxtest: opening a database: %v", err)
	}

	t.Cleanup(func() { _ = db.Close() })

	return db
}

// newEnv puts the inbox on connections of pool that can be made to fail.
func newEnv(t testing.TB, db, pool *sql.DB, dialect inbox.Dialect, opts []inbox.Option) *Env {
	t.Helper()

	env := &Env{DB: db, faults: &faults{}}

	failing := sql.OpenDB(connector{pool, env.faults})
	failing.SetMaxIdleConns(-1) // connections go back to the pool that they come from

	t.Cleanup(func() { _ = failing.Close() })

	var err error
	if env.Inbox, err = inbox.New(failing, dialect, opts...); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}

	if err := env.Inbox.Migrate(context.Background()); err != nil {
		t.Fatalf("inboxtest: %v", err)
	}

	return env
}

// Exec runs a statement on the database, to create tables or fill them. A failure ends the test.
func (e *Env) Exec(t testing.TB, query string, args ...any) {
	t.Helper()

	if _, err := e.DB.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("inboxtest: %s: %v", query, err)
	}
}

// Count returns an effect for [RequireOnce]: the number that a query returns. A failure ends the test.
func Count(t testing.TB, query string, args ...any) func(db *sql.DB) int {
	t.Helper()

	return func(db *sql.DB) (n int) {
		t.Helper()

		if err := db.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
			t.Fatalf("inboxtest: %s: %v", query, err)
		}

		return n
	}
}

// Handler is what a router takes: a function that returns messages, or one that does not.
type Handler interface {
	message.HandlerFunc | message.NoPublishHandlerFunc |
		func(*message.Message) ([]*message.Message, error) | func(*message.Message) error
}

func handlerFunc[H Handler](h H) message.HandlerFunc {
	consume := func(h message.NoPublishHandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) }
	}

	switch h := any(h).(type) {
	case message.HandlerFunc:
		return h
	case func(*message.Message) ([]*message.Message, error):
		return h
	case message.NoPublishHandlerFunc:
		return consume(h)
	case func(*message.Message) error:
		return consume(h)
	default:
		panic("unreachable: not a Handler")
	}
}

// Deliver has a copy of the message handled once, behind the inbox and in a router, and returns the messages that
// would be published, or the error (or panic, as an error) that nacks it.
func Deliver[H Handler](t testing.TB, env *Env, handler H, msg *message.Message) ([]*message.Message, error) {
	t.Helper()

	c := startConsumer(t, env.Inbox, handlerFunc(handler))
	defer c.stop()

	d := c.deliver(msg)

	return d.outputs, d.err
}
