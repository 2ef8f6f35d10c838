package stored_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestBacklog(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "hands out requeued dead letters of same-transaction mode, beside its handler", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t, inbox.WithMaxAttempts(1))
		backlog, err := ib.Backlog(billing)
		require.OK(t, err)

		pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		t.Cleanup(func() { require.OK(t, pubsub.Close()) })

		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
		require.OK(t, err)
		router.AddMiddleware(ib.Middleware)

		failing := true // until the dead letter is there
		charge := func(msg *message.Message) error {
			if failing {
				return errBroken
			}

			return write(db, msg, nil)
		}

		router.AddConsumerHandler(billing, orders, pubsub, charge)
		router.AddConsumerHandler("billing-backlog", orders, backlog, charge)
		running.Run(t, router)
		running.Publish(t, pubsub, orders, delivery("e1")) // which acks the dead letter
		db.RequireOnce(t)

		failing = false

		dead, err := ib.Dead(t.Context(), 10)
		require.OK(t, err)
		require.Equal(t, "number of dead letters", len(dead), 1)
		require.Equal(t, "topic", dead[0].Topic, orders)

		n, err := ib.Requeue(t.Context(), dead[0].Key)
		require.OK(t, err)
		require.Equal(t, "requeued", n, 1)
		awaitFinished(t, db, "e1")

		running.Publish(t, pubsub, orders, delivery("e1")) // is a duplicate
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "hands out what is left over when a service moves back to same-transaction mode", func(t *testing.T, db *testdb.DB) {
		before := start(t, db.New(t), retryAtOnce)
		before.store(t, "e1", "e2", "e3")
		before.close(t)

		ib := another(t, db).New(t)
		after := startBacklog(t, ib)

		for range 3 {
			msg := after.next(t)
			_, err := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, write(db, msg, nil) })(msg)
			require.OK(t, err)
			msg.Ack()
		}

		awaitFinished(t, db, "e1", "e2", "e3")
		db.RequireOnce(t, "e1", "e2", "e3")
	})

	forEachEngine(t, "waits while nothing is stored, and closes", func(t *testing.T, db *testdb.DB) {
		p := startBacklog(t, db.New(t))
		require.OK(t, closeAsync(t, p.subscriber))

		if msg := require.Await(t, "the end of the messages", p.messages); msg != nil {
			t.Errorf("got message %q", msg.UUID)
		}
	})
}

func TestForget(t *testing.T) {
	t.Parallel()

	event := func(id string) inbox.Event { return inbox.Event{Consumer: billing, Source: orders, ID: id} }

	forEachEngine(t, "removes a stored message, and its next delivery is an event as any other", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryNever)
		p.store(t, "e1")
		p.next(t).Nack()
		awaitRelease(t, db, "e1")

		known, err := p.Forget(t.Context(), event("e1"))
		require.OK(t, err)
		require.Equal(t, "known", known, true)
		requireRecorded(t, db, 0)
		require.Equal(t, "messages", unfinished(t, db), 0)

		known, err = p.Forget(t.Context(), event("e1"))
		require.OK(t, err)
		require.Equal(t, "known", known, false)

		p.store(t, "e1")

		msg := p.next(t)
		require.Equal(t, "attempts", stored(t, db, "e1").attempts, 1)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "takes the lease from a worker", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), safeLease)
		p.store(t, "e1")

		msg := p.next(t)
		_, err := p.Forget(t.Context(), event("e1"))
		require.OK(t, err)
		requireLost(t, msg)
		require.ErrorIs(t, write(db, msg, nil), inbox.ErrLeaseLost)

		p.store(t, "e1") // again, while the worker still has the old message
		again := p.next(t)
		msg.Ack()
		require.OK(t, write(db, again, nil))
		again.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "of a message with an ordering key has the next of its key handed out", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), byLetters, retryNever)
		p.store(t, "k1", "k2", "k3")
		p.next(t).Nack()
		awaitRelease(t, db, "k1")

		for _, id := range []string{"k1", "k3"} {
			_, err := p.Forget(t.Context(), event(id))
			require.OK(t, err)
		}

		p.requireHandedOut(t, "k2")
		p.store(t, "k4")
		p.requireHandedOut(t, "k4")
	})

	forEachEngine(t, "of an event that was finished has it handled again", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))

		for range 2 {
			p.store(t, "e1")
			p.requireHandedOut(t, "e1")
			awaitFinished(t, db, "e1")

			known, err := p.Forget(t.Context(), event("e1"))
			require.OK(t, err)
			require.Equal(t, "known", known, true)
		}
	})
}
