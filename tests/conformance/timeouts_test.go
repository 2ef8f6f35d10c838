package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const short = 150 * time.Millisecond

func TestTxTimeout(t *testing.T) {
	t.Parallel()

	// overdue is a handler that outlasts the timeout.
	overdue := func(t *testing.T, db *testdb.DB, outputs ...*message.Message) *worker {
		w := newWorker(db)
		w.then = func(_ int, msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()

			tx, _ := inbox.TxFromContext(msg.Context())

			require.Eventually(t, "the transaction is over", func() bool { // its timer is not the one of the handler's context
				_, err := tx.ExecContext(context.Background(), "SELECT 1")

				return err != nil
			})

			return outputs, nil
		}

		return w
	}

	for name, outputs := range map[string][]*message.Message{"without": nil, "with": {delivery("o1")}} {
		forEachEngine(t, "rolls back a handler "+name+" outputs that takes longer, says so, and redelivery runs",
			func(t *testing.T, db *testdb.DB) {
				ib := newInbox(t, db, inbox.WithTxTimeout(short))

				_, err := deliver(ib, overdue(t, db, outputs...).handle, delivery("e1"))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorNames(t, err, "WithTxTimeout")
				db.RequireOnce(t)
				requireIdle(t, db)

				long := newInbox(t, db, inbox.WithTxTimeout(require.Patience))

				got, err := deliver(long, returning(db, outputs...).handle, delivery("e1"))
				require.OK(t, err)
				require.Equal(t, "outputs", uuids(got), uuids(outputs))
				db.RequireOnce(t, "e1")
			})
	}

	forEachEngine(t, "ends a statement that is running", func(t *testing.T, db *testdb.DB) {
		query := "SELECT pg_sleep(60)"
		if db.Engine.Dialect == inbox.SQLite {
			query = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
		}

		ib := newInbox(t, db, inbox.WithTxTimeout(short))
		started := time.Now()

		_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())

			var ignored any

			return nil, tx.QueryRowContext(msg.Context(), query).Scan(&ignored)
		}, delivery("e1"))

		if err == nil || time.Since(started) > require.Patience/2 {
			t.Fatalf("ended after %s with error %v", time.Since(started), err)
		}

		requireIdle(t, db)
		requireRecorded(t, db, 0)
	})

	forEachPostgres(t, "ends the wait of a claim", func(t *testing.T, db *testdb.DB) {
		first, second := newGate(db), newWorker(db)

		firstDone := deliverAsync(newInbox(t, db), first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		_, err := deliver(newInbox(t, db, inbox.WithTxTimeout(short)), second.handle, delivery("e1"))
		if err == nil {
			t.Fatal("a duplicate was acked before the first was committed")
		}

		first.leave <- nil

		require.OK(t, require.Await(t, "the first", firstDone).err)
		second.requireRuns(t, 0)
	})

	forEachEngine(t, "leaves a handler that is in time alone", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db, inbox.WithTxTimeout(require.Patience)), newWorker(db)

		for range 2 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
		}

		db.RequireOnce(t, "e1")
	})
}

func TestLockTimeout(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "turns the wait for a concurrent duplicate into ErrInFlight", func(t *testing.T, db *testdb.DB) {
		ib, first, second := newInbox(t, db, inbox.WithLockTimeout(short)), newGate(db), newWorker(db)

		firstDone := deliverAsync(ib, first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		started := time.Now()

		_, err := deliver(ib, second.handle, delivery("e1"))
		require.ErrorIs(t, err, inbox.ErrInFlight)

		if waited := time.Since(started); waited < short || waited > require.Patience/2 {
			t.Errorf("waited %s, want about %s", waited, short)
		}

		first.leave <- errors.New("failed")

		require.ErrorNames(t, require.Await(t, "the first", firstDone).err, "failed")

		_, err = deliver(ib, second.handle, delivery("e1"))
		require.OK(t, err)
		db.RequireOnce(t, "e1")
	})

	// setting shows what limits the waiting of statements on this transaction's connection.
	setting := func(db *testdb.DB, tx *sql.Tx) (value string, err error) {
		query := "SHOW lock_timeout"
		if db.Engine.Dialect == inbox.SQLite {
			query = "PRAGMA busy_timeout"
		}

		return value, tx.QueryRowContext(context.Background(), query).Scan(&value)
	}

	forEachEngine(t, "leaves the session's own setting for the handler and for whoever comes next", func(t *testing.T, db *testdb.DB) {
		newInbox(t, db)

		dsn, want := db.DSN+"&options=-c%20lock_timeout%3D12345", "12345ms"
		if db.Engine.Dialect == inbox.SQLite {
			dsn, want = strings.ReplaceAll(db.DSN, "busy_timeout(10000)", "busy_timeout(12345)"), "12345"
		}

		one, err := sql.Open(db.Engine.Driver, dsn)
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, one.Close()) })
		one.SetMaxOpenConns(1)

		ib, err := inbox.New(one, db.Engine.Dialect, inbox.WithTable(db.Inbox()), consumer(billing), inbox.WithLockTimeout(short))
		require.OK(t, err)

		requireSetting := func(when string) {
			t.Helper()

			tx, err := one.BeginTx(context.Background(), nil)
			require.OK(t, err)
			defer tx.Rollback() //nolint:errcheck // read only

			got, err := setting(db, tx)
			require.OK(t, err)
			require.Equal(t, "setting "+when, got, want)
		}

		inHandler := ""
		h := func(msg *message.Message) (_ []*message.Message, err error) {
			tx, _ := inbox.TxFromContext(msg.Context())
			inHandler, err = setting(db, tx)

			return nil, err
		}

		_, err = deliver(ib, h, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "setting in the handler", inHandler, want)
		requireSetting("after a fresh event")

		_, err = deliver(ib, h, delivery("e1"))
		require.OK(t, err)
		requireSetting("after a duplicate")

		first := newGate(db)
		firstDone := deliverAsync(newInbox(t, db), first.handle, delivery("e2"))
		require.Await(t, "the first handler", first.entered)

		_, err = deliver(ib, h, delivery("e2"))
		require.ErrorIs(t, err, inbox.ErrInFlight)
		requireSetting("after ErrInFlight")

		first.leave <- nil

		require.OK(t, require.Await(t, "the first", firstDone).err)
	})

	forEachPostgres(t, "does not limit the waiting of the handler's own statements", func(t *testing.T, db *testdb.DB) {
		db.Exec(t, "CREATE TABLE "+db.Table("account")+" AS SELECT 0 AS n")

		update := "UPDATE " + db.Table("account") + " SET n = n + 1"

		other, err := db.BeginTx(context.Background(), nil)
		require.OK(t, err)
		defer other.Rollback() //nolint:errcheck // committed below

		_, err = other.ExecContext(context.Background(), update)
		require.OK(t, err)

		done := deliverAsync(newInbox(t, db, inbox.WithLockTimeout(short)), func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())
			_, err := tx.ExecContext(msg.Context(), update)

			return nil, err
		}, delivery("e1"))

		require.Eventually(t, "the handler waits for longer than the lock timeout", func() bool {
			return db.Int(t, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = $1
				AND clock_timestamp() - query_start > interval '400ms'`, update) == 1
		})
		require.OK(t, other.Commit())
		require.OK(t, require.Await(t, "the handler", done).err)
		require.Equal(t, "account", db.Int(t, "SELECT n FROM "+db.Table("account")), 2)
	})
}
