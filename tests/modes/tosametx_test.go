package modes_test

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

var errNotToday = errors.New("not today")

// hoard stores events through a service that has its hands full as long as it lives: they are left over.
func (w *world) hoard(t *testing.T, ids ...string) {
	t.Helper()

	begun, proceed := make(chan struct{}, 1), make(chan struct{})
	d := w.deploy(t, storedPlain, withSubscriber(inbox.WithConcurrency(1)), func(s *service) {
		s.pub = nil
		s.handle = func(msg *message.Message) ([]*message.Message, error) {
			begun <- struct{}{}
			<-proceed

			return nil, inbox.InTx(msg.Context(), func(*sql.Tx) error { return inbox.ErrSkip })
		}
	})
	d.deliver(t, "busy")
	require.Await(t, "the handler", begun)
	d.deliver(t, ids...)

	closed := make(chan error, 1)
	go func() { closed <- d.router.Close() }()

	require.Eventually(t, "it is closing", func() bool { return d.broker.Publish(orders) != nil })
	close(proceed)
	require.OK(t, require.Await(t, "the end", closed))
	require.Equal(t, "left over", d.stats(t), inbox.ConsumerStats{Consumer: billing, Received: int64(len(ids))})
	w.RequireOnce(t)
}

// A service moves from store-then-process to same-transaction mode, with stored messages left over.
func TestMovingToSameTransaction(t *testing.T) {
	t.Parallel()

	ids := []string{"order-1", "order-2", "order-3"}

	forEachEngine(t, "handles once what is left over and delivered again", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		w.hoard(t, ids...)
		after := w.deploy(t, sameTx)

		var deliveries sync.WaitGroup
		for range 3 {
			deliveries.Go(func() { <-after.send(t, ids...) })
		}

		deliveries.Wait()

		w.requirePublished(t, ids...)
		after.stop(t)
		w.drain(t)
		w.RequireOnce(t, ids...)

		for _, id := range ids {
			require.Equal(t, "runs", w.runs.of(id), 1)
		}
	})

	forEachEngine(t, "leaves nothing behind of what it handles without outputs", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		w.hoard(t, ids...)
		after := w.deploy(t, sameTx, func(s *service) { s.pub = nil }, handling(func(msg *message.Message) ([]*message.Message, error) {
			_, err := byTx(db)(msg)

			return nil, err
		}))
		after.deliver(t, ids...)

		require.Equal(t, "stored", w.stored(t), 0)
		w.RequireOnce(t, ids...)
	})

	// Its broker has forgotten it, and nothing else than the backlog can publish it.
	forEachEngine(t, "shows in Stats what is committed and not published, and publishes it", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		before := w.deploy(t, stored, notPublishing)
		before.deliver(t, "order-1")
		require.Eventually(t, "it is committed", func() bool { return len(w.Effects(t)) == 1 })
		before.stop(t)

		if before.stats(t) == (inbox.ConsumerStats{}) {
			t.Error("there seems to be nothing left to do")
		}

		after := w.deploy(t, sameTxWithBacklog)
		w.requirePublished(t, "order-1")
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1")
		require.Equal(t, "stats", after.stats(t), inbox.ConsumerStats{})
	})

	forEachEngine(t, "handles what is left over through a backlog, without redelivery", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		w.hoard(t, ids...)
		w.deploy(t, sameTxWithBacklog)

		w.requirePublished(t, ids...)
		w.awaitNothingStored(t)
		w.RequireOnce(t, ids...)
	})

	forEachEngine(t, "handles once what comes from the backlog and by redelivery", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		w.hoard(t, ids...)
		after := w.deploy(t, sameTxWithBacklog)

		for range 3 {
			after.deliver(t, ids...)
		}

		w.requirePublished(t, ids...)
		w.awaitNothingStored(t)
		w.RequireOnce(t, ids...)
	})

	forEachEngine(t, "keeps what is left over while the handler fails", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		w.hoard(t, "order-1")

		handler, before := byTx(db), w.runs.of("order-1")
		after := w.deploy(t, sameTx, handling(func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := handler(msg)
			if w.runs.of("order-1") < before+3 {
				err = errors.Join(err, errNotToday)
			}

			return outputs, err
		}))
		after.deliver(t, "order-1")

		w.requirePublished(t, "order-1")
		after.stop(t)
		w.drain(t)
		w.RequireOnce(t, "order-1")
		require.Equal(t, "runs", w.runs.of("order-1"), before+3)
	})

	forEachEngine(t, "makes a dead letter of what is left over and keeps failing", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		w.hoard(t, "order-1")

		before := w.runs.of("order-1")
		after := w.deploy(t, sameTx, with(inbox.WithMaxAttempts(3)), handling(func(*message.Message) ([]*message.Message, error) {
			return nil, errNotToday
		}))
		after.deliver(t, "order-1")

		require.Equal(t, "runs", w.runs.of("order-1"), before+3)
		require.Equal(t, "stats", after.stats(t), inbox.ConsumerStats{Consumer: billing, Dead: 1})
	})

	// Recovery handed out a message that was still being processed (Wolverine 587).
	for name, handler := range map[string]func(*testdb.DB) message.HandlerFunc{"in InTx": byInTx, "under the middleware": byTx} {
		forEachEngine(t, "leaves alone what a worker of the old mode has in its hands, "+name, func(t *testing.T, db *testdb.DB) {
			w := newWorld(t, db)
			h := handler(db)
			begun, proceed := make(chan struct{}, 1), make(chan struct{})
			before := w.deploy(t, map[string]mode{"in InTx": storedPlain}[name].or(stored), handling(
				func(msg *message.Message) ([]*message.Message, error) {
					begun <- struct{}{}
					<-proceed

					return h(msg)
				}), func(s *service) { s.pub = nil })
			before.deliver(t, "order-1")
			require.Await(t, "the old mode", begun)

			after := w.deploy(t, sameTx)
			delivered := after.send(t, "order-1")

			if name == "in InTx" { // no transaction is in the way
				require.Await(t, "the ack of the new mode", delivered)
			}

			close(proceed)
			require.Await(t, "the ack of the new mode", delivered)

			w.awaitNothingStored(t)
			w.RequireOnce(t, "order-1")
			require.Equal(t, "runs", w.runs.of("order-1"), 1)
		})
	}
}

func (m mode) or(other mode) mode {
	if m == "" {
		return other
	}

	return m
}

// A redelivery in same-transaction mode does not overtake what store-then-process has decided about a message.
func TestRedeliveryTakesOverNothing(t *testing.T) {
	t.Parallel()

	failing := handling(func(msg *message.Message) ([]*message.Message, error) {
		if msg.Metadata.Get("event_id") == "order-1" {
			return nil, errNotToday
		}

		<-msg.Context().Done()

		return nil, errNotToday
	})

	for name, test := range map[string]struct {
		options []inbox.SubscriberOption
		deliver []string
		left    inbox.ConsumerStats
		again   string // is not to run
	}{
		"that waits for its next attempt": {
			options: []inbox.SubscriberOption{inbox.WithBackoff(time.Hour, time.Hour)},
			deliver: []string{"order-1"}, left: inbox.ConsumerStats{Waiting: 1}, again: "order-1",
		},
		"that is dead": {
			options: []inbox.SubscriberOption{inbox.WithMaxAttempts(1)},
			deliver: []string{"order-1"}, left: inbox.ConsumerStats{Dead: 1}, again: "order-1",
		},
		"that waits behind another one with its ordering key": {
			options: []inbox.SubscriberOption{
				inbox.WithBackoff(time.Hour, time.Hour), inbox.WithOrderingKey(func(*message.Message) string { return "customer" }),
			},
			deliver: []string{"order-1", "order-2"}, left: inbox.ConsumerStats{Waiting: 1, Received: 1}, again: "order-2",
		},
	} {
		forEachEngine(t, name, func(t *testing.T, db *testdb.DB) {
			w := newWorld(t, db)
			before := w.deploy(t, stored, withSubscriber(test.options...), failing)
			for _, id := range test.deliver {
				before.deliver(t, id)
			}

			left := test.left
			left.Consumer = billing
			require.Eventually(t, "the fate is decided", func() bool { return before.stats(t) == left })
			before.stop(t)

			runs := w.runs.of(test.again)
			after := w.deploy(t, sameTx)
			after.deliver(t, test.again)

			require.Equal(t, "runs", w.runs.of(test.again), runs)
			require.Equal(t, "left", after.stats(t), left)
			w.RequireOnce(t)
		})
	}
}
