package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestInTx(t *testing.T) {
	t.Parallel()

	failure := errors.New("failed")

	// handle runs fn as the handler of a fresh event.
	handle := func(t *testing.T, db *testdb.DB, fn func(ctx context.Context) error) error {
		t.Helper()

		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			return nil, fn(msg.Context())
		}, delivery("e1"))

		return err
	}

	// writing is a function for InTx that writes an effect and returns err.
	writing := func(db *testdb.DB, name string, err error) func(tx *sql.Tx) error {
		return func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(context.Background(), insertEffect(db), name); err != nil {
				return err
			}

			return err
		}
	}

	forEachEngine(t, "writes in the handler's transaction", func(t *testing.T, db *testdb.DB) {
		require.OK(t, handle(t, db, func(ctx context.Context) error {
			return inbox.InTx(ctx, func(tx *sql.Tx) error {
				around, _ := inbox.TxFromContext(ctx)
				require.Equal(t, "same transaction", tx == around, true)

				return writing(db, "inside", nil)(tx)
			})
		}))
		db.RequireOnce(t, "inside")
	})

	forEachEngine(t, "returns the function's error unchanged and everything is rolled back with the handler", func(t *testing.T, db *testdb.DB) {
		err := handle(t, db, func(ctx context.Context) error { return inbox.InTx(ctx, writing(db, "inside", failure)) })
		require.Equal(t, "error", err, failure)
		db.RequireOnce(t)
		requireRecorded(t, db, 0)
	})

	forEachEngine(t, "whose error is swallowed leaves nothing half-written", func(t *testing.T, db *testdb.DB) {
		require.OK(t, handle(t, db, func(ctx context.Context) error {
			require.OK(t, effectNamed(db, ctx, "before"))
			require.ErrorIs(t, inbox.InTx(ctx, writing(db, "undone", failure)), failure)

			return effectNamed(db, ctx, "after")
		}))
		db.RequireOnce(t, "before", "after")
		requireRecorded(t, db, 1)
	})

	forEachEngine(t, "whose function swallows a database error undoes it", func(t *testing.T, db *testdb.DB) {
		require.OK(t, handle(t, db, func(ctx context.Context) error {
			err := inbox.InTx(ctx, func(tx *sql.Tx) error {
				require.OK(t, writing(db, "undone", nil)(tx))

				_, err := tx.ExecContext(ctx, "INSERT INTO nowhere_at_all VALUES (1)")
				require.ErrorNames(t, err, "nowhere_at_all")

				return nil
			})
			if db.Engine.Dialect == inbox.Postgres && err == nil {
				t.Error("a savepoint was kept in which a statement had failed")
			}

			if err == nil { // SQLite goes on after a failed statement
				return nil
			}

			return effectNamed(db, ctx, "undone")
		}))
		db.RequireOnce(t, "undone")
	})

	forEachEngine(t, "whose panic is recovered by the handler leaves nothing half-written", func(t *testing.T, db *testdb.DB) {
		require.OK(t, handle(t, db, func(ctx context.Context) error {
			value := recovered(func() {
				_ = inbox.InTx(ctx, func(tx *sql.Tx) error {
					require.OK(t, writing(db, "undone", nil)(tx))
					panic("oops")
				})
			})
			require.Equal(t, "panic value", value, any("oops"))

			return effectNamed(db, ctx, "after")
		}))
		db.RequireOnce(t, "after")
	})

	forEachEngine(t, "nests, and each level is undone alone", func(t *testing.T, db *testdb.DB) {
		require.OK(t, handle(t, db, func(ctx context.Context) error {
			err := inbox.InTx(ctx, func(tx *sql.Tx) error {
				require.OK(t, writing(db, "outer", nil)(tx))
				require.ErrorIs(t, inbox.InTx(ctx, writing(db, "undone", failure)), failure)
				require.OK(t, inbox.InTx(ctx, writing(db, "inner", nil)))

				return nil
			})
			require.OK(t, err)

			err = inbox.InTx(ctx, func(*sql.Tx) error {
				require.OK(t, inbox.InTx(ctx, writing(db, "undone with the outer", nil)))

				return failure
			})
			require.ErrorIs(t, err, failure)

			return nil
		}))
		db.RequireOnce(t, "outer", "inner")
	})

	forEachEngine(t, "that cannot be undone fails the message even if its error is swallowed", func(t *testing.T, db *testdb.DB) {
		err := handle(t, db, func(ctx context.Context) error {
			_ = inbox.InTx(ctx, func(tx *sql.Tx) error {
				return errors.Join(execAll(tx, "ROLLBACK", "BEGIN"), writing(db, "half", nil)(tx), failure)
			})

			return nil
		})
		if err == nil {
			t.Error("a message was acked with something half-written")
		}

		db.RequireOnce(t)
	})

	forEachEngine(t, "goes on when the message's context is cancelled", func(t *testing.T, db *testdb.DB) {
		ctx, cancel := context.WithCancel(context.Background())
		msg := delivery("e1")
		msg.SetContext(ctx)

		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			cancel()

			return nil, inbox.InTx(msg.Context(), writing(db, "inside", nil))
		}, msg)
		require.OK(t, err)
		db.RequireOnce(t, "inside")
	})

	forEachEngine(t, "is an error outside an inbox, after the handler, and with nil", func(t *testing.T, db *testdb.DB) {
		never := func(*sql.Tx) error {
			t.Error("ran")

			return nil
		}
		require.ErrorNames(t, inbox.InTx(context.Background(), never), "InTx")

		var handlers context.Context

		require.OK(t, handle(t, db, func(ctx context.Context) error {
			handlers = ctx
			require.ErrorNames(t, inbox.InTx(ctx, nil), "nil")

			return nil
		}))
		require.ErrorNames(t, inbox.InTx(handlers, never), "InTx")
	})
}
