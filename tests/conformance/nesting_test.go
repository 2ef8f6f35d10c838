package conformance_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestNesting(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "the same inbox twice passes through to one transaction", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), failing(db, errors.New("failed"))
		twice := ib.Middleware(ib.Middleware(w.handle))

		_, err := twice(delivery("e1"))
		require.ErrorNames(t, err, "failed")
		requireRecorded(t, db, 0)

		for range 2 {
			_, err = twice(delivery("e1"))
			require.OK(t, err)
		}

		w.requireRuns(t, 2)
		db.RequireOnce(t, "e1")
		requireRecorded(t, db, 1)
	})

	forEachEngine(t, "a copy of the message in between is an error and not a deadlock", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		copying := func(msg *message.Message) ([]*message.Message, error) {
			return ib.Middleware(w.handle)(msg.CopyWithContext())
		}
		done := deliverAsync(ib, copying, delivery("e1"))

		require.ErrorIs(t, require.Await(t, "the middleware", done).err, inbox.ErrInFlight)
		w.requireRuns(t, 0)
		requireRecorded(t, db, 0)
	})

	// Two inboxes of two databases: the inner one has records and transactions of its own, whatever the outer one does.
	forEachEngine(t, "two different inboxes each keep their own record", func(t *testing.T, db *testdb.DB) {
		inner := testdb.Open(t, db.Engine)
		inner.EffectsTable(t)

		innerWorker := newWorker(inner)
		outerInbox, innerInbox := newInbox(t, db), newInbox(t, inner)
		outer := outerInbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := innerInbox.Middleware(innerWorker.handle)(msg)
			if err != nil {
				return nil, err
			}

			return outputs, effect(db, msg.Context()) // the outer transaction is back in the context
		})

		for range 2 {
			_, err := outer(delivery("e1"))
			require.OK(t, err)
		}

		db.RequireOnce(t, "e1")
		inner.RequireOnce(t, "e1")
		requireRecorded(t, db, 1)
		requireRecorded(t, inner, 1)
	})

	forEachEngine(t, "two values of one inbox, and one inside of another inbox's, pass through as well", func(t *testing.T, db *testdb.DB) {
		other := testdb.Open(t, db.Engine)
		w := newWorker(db)
		again := newInbox(t, db).Middleware(func(msg *message.Message) ([]*message.Message, error) {
			require.Equal(t, "event", eventOf(msg), inbox.Event{Consumer: billing, ID: "e1"})

			return nil, nil
		})
		chain := newInbox(t, db).Middleware(func(msg *message.Message) ([]*message.Message, error) {
			if _, err := w.handle(msg); err != nil {
				return nil, err
			}

			return newInbox(t, other).Middleware(again)(msg)
		})

		for range 2 {
			_, err := chain(delivery("e1"))
			require.OK(t, err)
		}

		w.requireRuns(t, 1)
		requireRecorded(t, db, 1)
		requireRecorded(t, other, 1)
	})

	forEachPostgres(t, "another event within a handler has a transaction of its own", func(t *testing.T, db *testdb.DB) {
		ib, inner := newInbox(t, db), newWorker(db)
		failure := errors.New("failed")

		_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
			other := delivery("e2")
			other.SetContext(msg.Context())

			if _, err := deliver(ib, inner.handle, other); err != nil {
				return nil, err
			}

			return nil, failure
		}, delivery("e1"))
		require.ErrorIs(t, err, failure)
		db.RequireOnce(t, "e2")
	})
}

func eventOf(msg *message.Message) inbox.Event {
	ev, _ := inbox.EventFromContext(msg.Context())

	return ev
}
