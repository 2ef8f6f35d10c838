package modes_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A service moves from same-transaction mode to store-then-process, and its broker delivers everything again.
func TestMovingToStoreThenProcess(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "runs nothing again that was handled before", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		before := w.deploy(t, sameTx)
		before.deliver(t, "order-1", "order-2")
		before.stop(t)

		after := w.deploy(t, stored)
		after.deliver(t, "order-1", "order-2", "order-3")

		w.requirePublished(t, "order-1", "order-2", "order-3")
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1", "order-2", "order-3")
		require.Equal(t, "runs", w.runs.of("order-1"), 1)
	})

	// An outgoing message was not published at all after a crash (MassTransit 4990).
	forEachEngine(t, "publishes what was committed and not published", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		before := w.deploy(t, sameTx, notPublishing)
		before.send(t, "order-1", "order-2")
		require.Eventually(t, "both are committed", func() bool { return len(w.Effects(t)) == 2 })
		before.stop(t)

		after := w.deploy(t, stored)
		after.deliver(t, "order-1", "order-2")

		w.requirePublished(t, "order-1", "order-2")
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1", "order-2")
		require.Equal(t, "runs", w.runs.of("order-1"), 1)
	})

	forEachEngine(t, "publishes it even when publishing fails again and the service moves back", func(
		t *testing.T, db *testdb.DB,
	) {
		w := newWorld(t, db)

		for _, m := range []mode{sameTx, stored, sameTx, stored} {
			d := w.deploy(t, m, notPublishing)
			d.send(t, "order-1")
			require.Eventually(t, "it is committed", func() bool { return len(w.Effects(t)) == 1 })
			d.stop(t)
		}

		after := w.deploy(t, sameTxWithBacklog)
		after.deliver(t, "order-1")

		w.requirePublished(t, "order-1")
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1")
		require.Equal(t, "runs", w.runs.of("order-1"), 1)
	})

	forEachEngine(t, "runs what failed before, and what was being handled", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		handler := byTx(db)
		before := w.deploy(t, sameTx, handling(func(msg *message.Message) ([]*message.Message, error) {
			if msg.Metadata.Get("event_id") == "order-2" {
				<-msg.Context().Done()
			}

			outputs, err := handler(msg)

			return outputs, errors.Join(err, errors.New("not today"))
		}))
		before.send(t, "order-1")
		require.Eventually(t, "order-1 runs", func() bool { return w.runs.of("order-1") > 0 })
		before.send(t, "order-2") // which keeps a single writer to itself
		require.Eventually(t, "order-2 runs", func() bool { return w.runs.of("order-2") > 0 })
		before.stop(t)
		w.RequireOnce(t)

		after := w.deploy(t, stored)
		after.deliver(t, "order-1", "order-2")

		w.requirePublished(t, "order-1", "order-2")
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1", "order-2")
	})

	// The old mode is in the middle of the event when the new one gets it.
	forEachEngine(t, "waits for what the old mode has in its hands", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		begun, proceed := make(chan struct{}, 1), make(chan struct{})
		handler := byTx(db)
		before := w.deploy(t, sameTx, handling(func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := handler(msg)
			begun <- struct{}{}
			<-proceed

			return outputs, err
		}))
		handled := before.send(t, "order-1")
		require.Await(t, "the old mode", begun)

		after := w.deploy(t, stored)
		delivered := after.send(t, "order-1")
		require.Eventually(t, "the new mode waits", func() bool { return after.DB.Stats().InUse >= 2 })
		close(proceed)
		require.Await(t, "the ack of the old mode", handled)
		require.Await(t, "the ack of the new mode", delivered)

		w.requirePublished(t, "order-1")
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1")
		require.Equal(t, "runs", w.runs.of("order-1"), 1)
	})
}
