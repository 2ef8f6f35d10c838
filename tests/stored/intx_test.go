package stored_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

var errBroken = errors.New("broken")

func TestInTx(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "commits what it writes with the completion of the message", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		require.OK(t, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			if _, ok := inbox.EventFromContext(msg.Context()); !ok {
				t.Error("no event in the context")
			}

			return insertEffect(db, tx, "e1")
		}))

		db.RequireOnce(t, "e1")
		require.Equal(t, "processed", isProcessed(t, db, "e1"), true)
		msg.Ack()
		awaitFinished(t, db, "e1")
	})

	forEachEngine(t, "undoes both after an error, which it returns as it is, and the next attempt runs", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryAtOnce)
		p.store(t, "e1")

		msg := p.next(t)
		if err := write(db, msg, errBroken); err != errBroken { //nolint:errorlint // it is not wrapped
			t.Fatalf("got error %v", err)
		}

		db.RequireOnce(t)
		require.Equal(t, "processed", isProcessed(t, db, "e1"), false)
		msg.Nack()

		msg = p.next(t)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	// watermill 579
	forEachEngine(t, "undoes both after a panic, and the next attempt runs", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryAtOnce)
		p.store(t, "e1")

		msg := p.next(t)

		func() {
			defer func() { require.Equal(t, "panic value", recover(), any("oops")) }()

			_ = inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
				require.OK(t, insertEffect(db, tx, "e1"))
				panic("oops")
			})
		}()

		if _, ok := inbox.TxFromContext(msg.Context()); ok {
			t.Error("the transaction is still in the context")
		}

		db.RequireOnce(t)
		msg.Nack()

		msg = p.next(t)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "may be called again in the same attempt after an error", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		require.ErrorIs(t, write(db, msg, errBroken), errBroken)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "does nothing once it has succeeded", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		require.OK(t, write(db, msg, nil))
		require.OK(t, inbox.InTx(msg.Context(), func(*sql.Tx) error {
			t.Error("a second function runs")

			return errBroken
		}))
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "that succeeded finishes the message even if it is nacked", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryNever)
		p.store(t, "e1")

		msg := p.next(t)
		require.OK(t, write(db, msg, nil))
		msg.Nack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "that succeeded in a process which died before the ack is not run again", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")
		require.OK(t, write(db, p.next(t), nil))

		steal(t, db, "e1", time.Hour) // in place of dying
		p.close(t)
		setDue(t, db, "e1", -time.Second)

		heir := start(t, another(t, db).New(t))
		awaitFinished(t, db, "e1")
		heir.store(t, "e2")
		heir.requireHandedOut(t, "e2")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "with ErrSkip finishes the message without effect", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryAtOnce)
		p.store(t, "e1")

		msg := p.next(t)
		require.ErrorIs(t, write(db, msg, inbox.ErrSkip), inbox.ErrSkip)
		msg.Nack() // as the router does with a handler that returns it
		awaitFinished(t, db, "e1")
		db.RequireOnce(t)

		p.store(t, "e1", "e2")
		p.requireHandedOut(t, "e2")
	})

	forEachEngine(t, "nests: what fails inside is undone alone", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		require.OK(t, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			require.OK(t, insertEffect(db, tx, "outer"))
			require.ErrorIs(t, write(db, msg, errBroken), errBroken)

			return inbox.InTx(msg.Context(), func(tx *sql.Tx) error { return insertEffect(db, tx, "inner") })
		}))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "outer", "inner")
	})

	forEachEngine(t, "lends its transaction to the message's context while it runs", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		requireTx := func(want *sql.Tx) {
			t.Helper()

			tx, ok := inbox.TxFromContext(msg.Context())
			require.Equal(t, "has a transaction", ok, want != nil)

			if tx != want {
				t.Error("it is another transaction")
			}
		}

		requireTx(nil)
		require.OK(t, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			requireTx(tx)

			x, ok := inbox.SqlxTxFromContext(msg.Context())
			require.Equal(t, "has a transaction of sqlx", ok && x.Tx == tx, true)

			return nil
		}))
		requireTx(nil)
		msg.Ack()
	})

	forEachEngine(t, "runs AfterCommit functions after its commit, and none of an attempt that failed", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		var ran []string

		msg := p.next(t)
		attempt := func(name string, err error) error {
			return inbox.InTx(msg.Context(), func(*sql.Tx) error {
				registered := inbox.AfterCommit(msg.Context(), func(ctx context.Context) {
					ran = append(ran, name)
					require.Equal(t, "processed", isProcessed(t, db, "e1"), true)
					require.OK(t, ctx.Err())
				})
				require.Equal(t, "registered", registered, true)
				require.Equal(t, "number that ran before the commit", len(ran), 0)

				return err
			})
		}

		require.Equal(t, "registered outside", inbox.AfterCommit(msg.Context(), func(context.Context) {}), false)
		require.ErrorIs(t, attempt("failed", errBroken), errBroken)
		require.OK(t, attempt("committed", nil))
		require.Equal(t, "functions that ran", ran, []string{"committed"})
		msg.Ack()
	})

	// watermill 568, 669
	forEachEngine(t, "is not ended by the end of the message's context", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		ctx, cancel := context.WithCancel(msg.Context())
		msg.SetContext(ctx)

		require.OK(t, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			cancel()

			return insertEffect(db, tx, "e1")
		}))
		db.RequireOnce(t, "e1")
		require.Equal(t, "processed", isProcessed(t, db, "e1"), true)

		p.store(t, "e2")

		msg = p.next(t)
		ctx, cancel = context.WithCancel(msg.Context())
		cancel() // before it begins
		msg.SetContext(ctx)
		require.OK(t, write(db, msg, nil))
		db.RequireOnce(t, "e1", "e2")
	})

	forEachEngine(t, "whose function ends the transaction itself is an error, and the next attempt runs", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryAtOnce)
		p.store(t, "e1")

		msg := p.next(t)
		err := inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			require.OK(t, insertEffect(db, tx, "e1"))

			return tx.Rollback()
		})
		require.ErrorIs(t, err, sql.ErrTxDone)
		db.RequireOnce(t)
		require.Equal(t, "processed", isProcessed(t, db, "e1"), false)
		msg.Nack()

		msg = p.next(t)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "needs a function", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")
		require.ErrorNames(t, inbox.InTx(p.next(t).Context(), nil), "function")
		require.Equal(t, "processed", isProcessed(t, db, "e1"), false)
	})
}
