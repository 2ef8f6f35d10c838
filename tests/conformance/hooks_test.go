package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// told keeps what hooks are told.
type told struct{ calls []string }

func (c *told) hooks() inbox.Hooks {
	event := func(name string) func(context.Context, inbox.Event) {
		return func(_ context.Context, ev inbox.Event) { c.calls = append(c.calls, name+" "+ev.Consumer+" "+ev.ID) }
	}
	failure := func(name string) func(context.Context, inbox.Event, error) {
		return func(_ context.Context, ev inbox.Event, err error) {
			c.calls = append(c.calls, fmt.Sprintf("%s %s %s: %v", name, ev.Consumer, ev.ID, err))
		}
	}

	return inbox.Hooks{Processed: event("processed"), Duplicate: event("duplicate"), Failed: failure("failed"), Retried: failure("retried")}
}

func TestHooks(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "are told what became of each delivery", func(t *testing.T, db *testdb.DB) {
		var calls told

		ib := newInbox(t, db, inbox.WithHooks(calls.hooks()))
		requireTold := func(h message.HandlerFunc, want ...string) {
			t.Helper()

			calls.calls = nil
			recovered(func() { _, _ = deliver(ib, h, delivery("e1")) })
			require.Equal(t, "hooks", calls.calls, want)
		}

		requireTold(failing(db, errors.New("broken")).handle, "failed billing e1: broken")
		requireTold(func(*message.Message) ([]*message.Message, error) { panic("oops") }, "failed billing e1: handler panicked")
		requireTold(failing(db, inbox.ErrSkip).handle)
		requireTold(newWorker(db).handle, "processed billing e1")
		requireTold(newWorker(db).handle, "duplicate billing e1")
		requireTold(newWorker(db).handle, "duplicate billing e1")
	})

	forEachPostgres(t, "are told of each attempt that is run again", func(t *testing.T, db *testdb.DB) {
		var states []string

		ib, w := newInbox(t, db, inbox.WithHooks(inbox.Hooks{
			Retried: func(_ context.Context, ev inbox.Event, err error) { states = append(states, ev.ID+" "+sqlState(err)) },
			Failed:  func(context.Context, inbox.Event, error) { t.Error("failed, but it was run again") },
		})), newWorker(db)
		w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
			return nil, map[int]func() error{
				1: func() error { return raise(msg, "40001") },
				2: func() error { return raise(msg, "40P01") },
				3: func() error { return nil },
			}[run]()
		}

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "retries", states, []string{"e1 40001", "e1 40P01"})
	})

	forEachEngine(t, "run after the transaction, without the message's cancellation", func(t *testing.T, db *testdb.DB) {
		check := func(ctx context.Context) {
			_, inTx := inbox.TxFromContext(ctx)
			require.Equal(t, "has a transaction", inTx, false)
			require.Equal(t, "connections in use", db.Stats().InUse, 0)
			require.OK(t, ctx.Err())
		}

		runs := 0
		event := func(ctx context.Context, _ inbox.Event) { runs++; check(ctx) }
		ib := newInbox(t, db, inbox.WithHooks(inbox.Hooks{
			Processed: event, Duplicate: event,
			Failed: func(ctx context.Context, _ inbox.Event, _ error) { runs++; check(ctx) },
		}))
		w := failing(db, errors.New("failed"))

		for range 4 { // failed, processed, duplicate by claim, duplicate by look-up
			msg := delivery("e1")
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			msg.SetContext(ctx)

			_, _ = deliver(ib, w.handle, msg)
		}

		require.Equal(t, "hooks that ran", runs, 4)
	})

	forEachEngine(t, "that are missing or panic change nothing", func(t *testing.T, db *testdb.DB) {
		oops := func(context.Context, inbox.Event) { panic("oops") }

		for i, hooks := range []inbox.Hooks{
			{},
			{Processed: oops, Duplicate: oops, Failed: func(context.Context, inbox.Event, error) { panic("oops") }},
		} {
			ib, w := newInbox(t, db, inbox.WithHooks(hooks)), failing(db, errors.New("failed"))
			id := fmt.Sprint("e", i)

			_, err := deliver(ib, w.handle, delivery(id))
			require.ErrorNames(t, err, "failed")

			for range 2 {
				_, err = deliver(ib, w.handle, delivery(id))
				require.OK(t, err)
			}

			value := recovered(func() {
				_, _ = deliver(ib, func(*message.Message) ([]*message.Message, error) { panic("the handler's") }, delivery(id+"panic"))
			})
			require.Equal(t, "panic value", value, any("the handler's"))
		}

		db.RequireOnce(t, "e0", "e1")
	})
}
