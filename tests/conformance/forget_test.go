package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestForget(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "has the event handled again, with its new outputs", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
			return message.Messages{delivery(map[int]string{1: "first", 2: "second"}[run])}, nil
		}

		for _, want := range []string{"first", "second"} {
			for range 2 {
				outputs, err := deliver(ib, w.handle, delivery("e1"))
				require.OK(t, err)
				require.Equal(t, "outputs", uuids(outputs), []string{want})
			}

			known, err := ib.Forget(context.Background(), inbox.Event{Consumer: billing, ID: "e1"})
			require.OK(t, err)
			require.Equal(t, "known", known, true)
			requireRecorded(t, db, 0)
			requireStoredOutputs(t, db, 0)
		}

		w.requireRuns(t, 2)
	})

	forEachEngine(t, "of an unknown event reports false and touches no other", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), returning(db, delivery("o1"))

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)

		for _, ev := range []inbox.Event{
			{Consumer: billing, ID: "e2"},
			{Consumer: "shipping", ID: "e1"},
			{Consumer: billing, Source: "shop", ID: "e1"},
			{Consumer: billing, ID: "e1", Time: time.Now()}, // as WithEventTime would have told
		} {
			known, err := ib.Forget(context.Background(), ev)
			require.OK(t, err)
			require.Equal(t, "known", known, false)
		}

		requireRecorded(t, db, 1)
		requireStoredOutputs(t, db, 1)
	})

	forEachEngine(t, "takes the event that the handler saw", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db, inbox.WithEventTime(func(*message.Message) (time.Time, bool) { return time.UnixMilli(1_700_000_000_000), true }))

		for _, id := range append([]string{newUUID()}, oddIDs...) {
			var seen inbox.Event

			_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
				seen, _ = inbox.EventFromContext(msg.Context())

				return nil, nil
			}, delivery(id))
			require.OK(t, err)

			known, err := ib.Forget(context.Background(), seen)
			require.OK(t, err)
			require.Equal(t, "known", known, true)
		}

		requireRecorded(t, db, 0)
	})

	forEachEngine(t, "needs id and consumer, and tables", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)

		_, err := ib.Forget(context.Background(), inbox.Event{Consumer: billing})
		require.ErrorIs(t, err, inbox.ErrNoEventID)

		_, err = ib.Forget(context.Background(), inbox.Event{ID: "e1"})
		require.ErrorIs(t, err, inbox.ErrNoConsumer)

		bare, err := inbox.New(db.DB, db.Engine.Dialect, inbox.WithTable(db.Schema+".elsewhere"))
		require.OK(t, err)

		_, err = bare.Forget(context.Background(), inbox.Event{Consumer: billing, ID: "e1"})
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
	})
}
