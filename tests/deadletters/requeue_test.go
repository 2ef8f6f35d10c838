package deadletters_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func (s *station) requeue(t testing.TB, letter inbox.Entry) {
	t.Helper()

	requeued, err := s.inbox.Requeue(t.Context(), letter.Key)
	require.OK(t, err)
	require.Equal(t, "requeued", requeued, 1)
}

// A replayed dead letter never ran (Wolverine 1593).
func TestRequeue(t *testing.T) {
	t.Parallel()

	both(t, "runs the handler in the router, and its outputs are published", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run <= n {
				return nil, errRefused
			}

			return []*message.Message{message.NewMessage("invoice-1", message.Payload("invoice"))}, nil
		}
		s.start(t)
		published := running.Collect(t, s.pubSub, invoices)

		s.deliver(t, newOrder("order-1"))
		s.requeue(t, s.requireDead(t, "order-1")[0])

		require.Eventually(t, "the invoice is published and nothing is stored", func() bool {
			return len(published()) == 1 && s.rows(t, payloads) == 0
		})
		require.Equal(t, "published", published()[0].UUID, "invoice-1")
		require.Equal(t, "deliveries through the middlewares outside", s.deliveries.of("order-1"), n+1)
		s.RequireOnce(t, "order-1")
		s.requireRows(t, failures, 0)
		s.requireDead(t)
	})

	both(t, "gives all attempts again, after which the message is dead again", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.start(t)

		s.deliver(t, newOrder("order-1"))
		s.requeue(t, s.requireDead(t, "order-1")[0])

		letter := s.awaitDead(t, "order-1")
		require.Equal(t, "attempts", letter.Attempts, n)
		require.Equal(t, "error", letter.LastError, errRefused.Error())
		require.Equal(t, "runs", s.runs.of("order-1"), 2*n)
		s.RequireOnce(t)
	})

	both(t, "runs it by redelivery, too", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(n)
		s.withoutBacklog = true
		s.start(t)

		s.deliver(t, newOrder("order-1"))
		s.requeue(t, s.requireDead(t, "order-1")[0])
		s.deliver(t, newOrder("order-1"))
		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "runs", s.runs.of("order-1"), n+1)
		s.RequireOnce(t, "order-1")
		s.requireRows(t, payloads, 0)
		s.requireRows(t, failures, 0)
	})

	both(t, "gives all attempts again by redelivery, after which the message is dead again", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.withoutBacklog = true
		s.start(t)

		s.deliver(t, newOrder("order-1"))
		s.requeue(t, s.requireDead(t, "order-1")[0])
		s.deliver(t, newOrder("order-1"))

		letter := s.requireDead(t, "order-1")[0]
		require.Equal(t, "attempts", letter.Attempts, n)
		require.Equal(t, "runs", s.runs.of("order-1"), 2*n)
		s.RequireOnce(t)
		s.requireRows(t, failures, 0)
	})

	forEachEngine(t, "of nothing, of unknown keys and of events that are not dead is 0", func(t *testing.T, db *testdb.DB) {
		s := newStation(t, db, inbox.WithMaxAttempts(n)).start(t)
		s.deliver(t, newOrder("order-1"))

		keys := []inbox.Key{inbox.KeyOf(inbox.Event{Consumer: billing, Source: orders, ID: "order-1"}), {1}}
		require.Equal(t, "known", s.Int(t, "SELECT count(*) FROM "+s.Table("inbox")), 1)

		for _, decide := range []func() (int64, error){
			func() (int64, error) { return s.inbox.Requeue(t.Context(), keys...) },
			func() (int64, error) { return s.inbox.Discard(t.Context(), keys...) },
			func() (int64, error) { return s.inbox.Requeue(t.Context()) },
			func() (int64, error) { return s.inbox.Discard(t.Context()) },
		} {
			decided, err := decide()
			require.OK(t, err)
			require.Equal(t, "decided", decided, 0)
		}

		s.deliver(t, newOrder("order-1"))
		s.RequireOnce(t, "order-1")
	})
}

func TestDiscard(t *testing.T) {
	t.Parallel()

	both(t, "makes the event a duplicate for good", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.start(t)
		s.deliver(t, newOrder("order-1"))

		discarded, err := s.inbox.Discard(t.Context(), s.requireDead(t, "order-1")[0].Key)
		require.OK(t, err)
		require.Equal(t, "discarded", discarded, 1)
		s.requireDead(t)
		s.requireRows(t, payloads, 0)

		s.deliver(t, newOrder("order-1"))
		require.Equal(t, "duplicates", s.told.duplicate.of("order-1"), 1)
		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.RequireOnce(t)
	})
}
