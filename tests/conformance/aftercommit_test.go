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

func TestAfterCommit(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "functions run in order once others see the commit, and not for duplicates", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		var ran []string

		w.then = func(_ int, msg *message.Message) ([]*message.Message, error) {
			for _, name := range []string{"first", "second", "third"} {
				registered := inbox.AfterCommit(msg.Context(), func(context.Context) {
					db.RequireOnce(t, "e1") // through another connection
					requireRecorded(t, db, 1)

					ran = append(ran, name)
				})
				require.Equal(t, "registered", registered, true)
			}

			require.Equal(t, "ran within the handler", len(ran), 0)

			return nil, nil
		}

		for range 2 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			require.Equal(t, "order", ran, []string{"first", "second", "third"})
		}
	})

	forEachEngine(t, "functions are dropped with a rollback", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)
		failure := errors.New("failed")

		for id, leave := range map[string]func() ([]*message.Message, error){
			"error":      func() ([]*message.Message, error) { return nil, failure },
			"ErrSkip":    func() ([]*message.Message, error) { return nil, inbox.ErrSkip },
			"panic":      func() ([]*message.Message, error) { panic(failure) },
			"nil output": func() ([]*message.Message, error) { return message.Messages{nil}, nil },
		} {
			recovered(func() {
				_, _ = deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
					inbox.AfterCommit(msg.Context(), func(context.Context) { t.Errorf("ran after %s", id) })

					return leave()
				}, delivery(id))
			})
		}
	})

	forEachEngine(t, "functions of a rolled back InTx are dropped, those around it stay", func(t *testing.T, db *testdb.DB) {
		var ran []string

		register := func(ctx context.Context, name string) {
			inbox.AfterCommit(ctx, func(context.Context) { ran = append(ran, name) })
		}

		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			register(ctx, "before")

			_ = inbox.InTx(ctx, func(*sql.Tx) error {
				register(ctx, "undone")

				return errors.New("undo")
			})
			_ = inbox.InTx(ctx, func(*sql.Tx) error {
				register(ctx, "inside")

				return nil
			})

			register(ctx, "after")

			return nil, nil
		}, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "ran", ran, []string{"before", "inside", "after"})
	})

	forEachEngine(t, "reports false where nothing will run", func(t *testing.T, db *testdb.DB) {
		nothing := func(context.Context) { t.Error("ran") }
		require.Equal(t, "outside an inbox", inbox.AfterCommit(context.Background(), nothing), false)

		var handlers context.Context

		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			handlers = msg.Context()
			require.Equal(t, "nil function", inbox.AfterCommit(handlers, nil), false)
			inbox.AfterCommit(handlers, func(ctx context.Context) {
				require.Equal(t, "within AfterCommit", inbox.AfterCommit(ctx, nothing), false)
			})

			return nil, nil
		}, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "after the handler", inbox.AfterCommit(handlers, nothing), false)
	})

	forEachEngine(t, "context has the message's values, no cancellation and no transaction", func(t *testing.T, db *testdb.DB) {
		type key struct{}

		ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
		defer cancel()

		msg := delivery("e1")
		msg.SetContext(ctx)

		ran := false

		_, err := deliver(newInbox(t, db, inbox.WithTxTimeout(require.Patience)), func(msg *message.Message) ([]*message.Message, error) {
			inbox.AfterCommit(msg.Context(), func(ctx context.Context) {
				ran = true

				_, bounded := ctx.Deadline()
				_, inTx := inbox.TxFromContext(ctx)
				ev, _ := inbox.EventFromContext(ctx)

				require.OK(t, ctx.Err())
				require.Equal(t, "has a deadline", bounded, false)
				require.Equal(t, "has a transaction", inTx, false)
				require.Equal(t, "value", ctx.Value(key{}), any("value"))
				require.Equal(t, "event", ev.ID, "e1")
			})
			cancel()

			return nil, nil
		}, msg)
		require.OK(t, err)
		require.Equal(t, "ran", ran, true)
	})

	forEachEngine(t, "a panic stops no other function and does not fail the message", func(t *testing.T, db *testdb.DB) {
		ran := 0
		w := returning(db, delivery("o1"))
		registering := func(msg *message.Message) ([]*message.Message, error) {
			for _, fn := range []func(){func() { ran++ }, func() { panic("oops") }, func() { ran++ }} {
				inbox.AfterCommit(msg.Context(), func(context.Context) { fn() })
			}

			return w.handle(msg)
		}

		outputs, err := deliver(newInbox(t, db), registering, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "functions that ran", ran, 2)
		require.Equal(t, "outputs", uuids(outputs), []string{"o1"})
		db.RequireOnce(t, "e1")
	})
}
