package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// raise makes the server end the statement with an error of this SQLSTATE.
func raise(msg *message.Message, state string) error {
	tx, _ := inbox.TxFromContext(msg.Context())
	_, err := tx.ExecContext(msg.Context(), `DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '`+state+`'; END $$`)

	return err
}

func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}

	return ""
}

func TestRetries(t *testing.T) {
	t.Parallel()

	forEachPostgres(t, "a serialization failure in the handler is run again in a fresh transaction", func(t *testing.T, db *testdb.DB) {
		db.Exec(t, "CREATE TABLE "+db.Table("counter")+" AS SELECT 0 AS n")

		var retried atomic.Int32

		ib := newInbox(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: sql.LevelRepeatableRead}),
			inbox.WithHooks(inbox.Hooks{Retried: func(context.Context, inbox.Event, error) { retried.Add(1) }}))
		w := newWorker(db)
		w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
			increment := "UPDATE " + db.Table("counter") + " SET n = n + 1"
			if run == 1 { // behind the back of the transaction, whose snapshot is taken
				db.Exec(t, increment)
			}

			tx, _ := inbox.TxFromContext(msg.Context())
			_, err := tx.ExecContext(msg.Context(), increment)

			return nil, err
		}

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		w.requireRuns(t, 2)
		require.Equal(t, "retries told", retried.Load(), 1)
		require.Equal(t, "counter", db.Int(t, "SELECT n FROM "+db.Table("counter")), 2)
		db.RequireOnce(t, "e1")
	})

	forEachPostgres(t, "a deadlock of two handlers is run again", func(t *testing.T, db *testdb.DB) {
		db.Exec(t, "CREATE TABLE "+db.Table("accounts")+" AS SELECT id, 0 AS n FROM unnest(ARRAY['a', 'b']) AS id")

		var (
			ib   = newInbox(t, db)
			meet sync.WaitGroup
			runs atomic.Int32
		)

		meet.Add(2)

		transfer := func(from, to string) message.HandlerFunc {
			met := false

			return func(msg *message.Message) ([]*message.Message, error) {
				runs.Add(1)

				tx, _ := inbox.TxFromContext(msg.Context())
				update := "UPDATE " + db.Table("accounts") + " SET n = n + 1 WHERE id = $1"

				if _, err := tx.ExecContext(msg.Context(), update, from); err != nil {
					return nil, err
				}

				if !met { // each has its first lock and goes for the other's
					met = true

					meet.Done()
					meet.Wait()
				}

				_, err := tx.ExecContext(msg.Context(), update, to)

				return nil, err
			}
		}

		first, second := deliverAsync(ib, transfer("a", "b"), delivery("e1")), deliverAsync(ib, transfer("b", "a"), delivery("e2"))

		require.OK(t, require.Await(t, "the first", first).err)
		require.OK(t, require.Await(t, "the second", second).err)
		require.Equal(t, "sum", db.Int(t, "SELECT sum(n) FROM "+db.Table("accounts")), 4)

		if n := runs.Load(); n < 3 { // more when the one that was run again got its first lock before the other woke up
			t.Errorf("%d runs: there was no deadlock", n)
		}
	})

	forEachPostgres(t, "a serialization failure that shows at commit is run again", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))

		var (
			meet sync.WaitGroup
			runs atomic.Int32
		)

		meet.Add(2)

		numbered := func() message.HandlerFunc { // write skew: both count, then both add
			met := false

			return func(msg *message.Message) ([]*message.Message, error) {
				runs.Add(1)

				tx, _ := inbox.TxFromContext(msg.Context())

				var n string

				err := tx.QueryRowContext(msg.Context(), "SELECT count(*)::text FROM "+db.Table("effects")).Scan(&n)
				if err != nil {
					return nil, err
				}

				if !met {
					met = true

					meet.Done()
					meet.Wait()
				}

				return nil, effectNamed(db, msg.Context(), n)
			}
		}

		first, second := deliverAsync(ib, numbered(), delivery("e1")), deliverAsync(ib, numbered(), delivery("e2"))

		require.OK(t, require.Await(t, "the first", first).err)
		require.OK(t, require.Await(t, "the second", second).err)
		db.RequireOnce(t, "0", "1")

		if runs.Load() < 3 {
			t.Fatalf("no attempt failed: the test does not test")
		}
	})

	for _, state := range []string{"40001", "40P01"} {
		forEachPostgres(t, "retries of "+state+" are bounded by WithMaxTxRetries", func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db, inbox.WithMaxTxRetries(2)), newWorker(db)

			var last error

			w.then = func(_ int, msg *message.Message) ([]*message.Message, error) {
				last = raise(msg, state)

				return nil, last
			}

			_, err := deliver(ib, w.handle, delivery("e1"))
			if err != last { //nolint:errorlint // identity is the point
				t.Fatalf("got %v, want the handler's own error of the last attempt", err)
			}

			require.Equal(t, "SQLSTATE", sqlState(err), state)
			w.requireRuns(t, 3)
			db.RequireOnce(t)
		})
	}

	forEachPostgres(t, "other errors of the database are not run again", func(t *testing.T, db *testdb.DB) {
		w := newWorker(db)
		w.then = func(_ int, msg *message.Message) ([]*message.Message, error) { return nil, raise(msg, "23505") }

		_, err := deliver(newInbox(t, db), w.handle, delivery("e1"))
		require.Equal(t, "SQLSTATE", sqlState(err), "23505")
		w.requireRuns(t, 1)
	})

	// MassTransit 4299, 6006
	forEachPostgres(t, "between attempts no transaction is open, and one delivery fails once", func(t *testing.T, db *testdb.DB) {
		var inUse, failed atomic.Int32

		ib := newInbox(t, db, inbox.WithMaxTxRetries(3), inbox.WithHooks(inbox.Hooks{
			Retried: func(context.Context, inbox.Event, error) { inUse.Add(int32(db.Stats().InUse)) },
			Failed:  func(context.Context, inbox.Event, error) { failed.Add(1) },
		}))

		_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) { return nil, raise(msg, "40001") }, delivery("e1"))
		require.Equal(t, "SQLSTATE", sqlState(err), "40001")
		require.Equal(t, "connections in use before retries", inUse.Load(), 0)
		require.Equal(t, "failures told", failed.Load(), 1)
	})

	forEachPostgres(t, "an attempt that is run again leaves no AfterCommit and no outputs of its own", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		var ran []int

		w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
			inbox.AfterCommit(msg.Context(), func(context.Context) { ran = append(ran, run) })

			if run < 3 {
				return message.Messages{delivery("dropped")}, raise(msg, "40001")
			}

			return message.Messages{delivery("kept")}, nil
		}

		for range 2 {
			outputs, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			require.Equal(t, "outputs", uuids(outputs), []string{"kept"})
		}

		require.Equal(t, "runs whose AfterCommit ran", ran, []int{3})
	})

	testdb.ForEach(t, sqliteOnly, "a busy database is tried again", func(t *testing.T, db *testdb.DB) {
		impatient, err := sql.Open(db.Engine.Driver, strings.ReplaceAll(db.DSN, "busy_timeout(10000)", "busy_timeout(20)"))
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, impatient.Close()) })

		other, err := db.BeginTx(context.Background(), nil)
		require.OK(t, err)

		var release sync.Once

		newInbox(t, db)

		ib, err := inbox.New(impatient, inbox.SQLite, inbox.WithTable(db.Inbox()), consumer(billing), inbox.WithHooks(inbox.Hooks{
			Retried: func(context.Context, inbox.Event, error) { release.Do(func() { require.OK(t, other.Commit()) }) },
		}))
		require.OK(t, err)

		_, err = other.ExecContext(context.Background(), insertEffect(db), "other")
		require.OK(t, err)

		_, err = deliver(ib, newWorker(db).handle, delivery("e1"))
		require.OK(t, err)
		db.RequireOnce(t, "e1", "other")
	})
}
