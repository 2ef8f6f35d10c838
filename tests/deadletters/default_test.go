package deadletters_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const poison = "poison"

func (s *station) poisonQueue(t testing.TB) message.HandlerMiddleware {
	t.Helper()

	queue, err := middleware.PoisonQueue(s.pubSub, poison)
	require.OK(t, err)

	return queue
}

func retry(times int) message.HandlerMiddleware {
	return middleware.Retry{MaxRetries: times, InitialInterval: time.Millisecond}.Middleware
}

func TestWithoutMaxAttempts(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "a failing message is nacked for as long as it fails", func(t *testing.T, db *testdb.DB) {
		const many = 50 // more than a subscriber's default

		s := newStation(t, db)
		s.handle = failing(many)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), many+1)
		require.Equal(t, "Failed", s.told.failed.of("order-1"), many)
		require.Equal(t, "Dead", s.told.dead.of("order-1"), 0)
		s.RequireOnce(t, "order-1")
		s.requireRows(t, failures, 0)
	})

	forEachEngine(t, "a poison queue outside gets the message with the error", func(t *testing.T, db *testdb.DB) {
		s := newStation(t, db)
		s.handle = failing(always)
		s.outside = []message.HandlerMiddleware{s.poisonQueue(t)}
		poisoned := running.Collect(t, s.pubSub, poison)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), 1)
		require.Equal(t, "poisoned", len(poisoned()), 1)
		require.Equal(t, "reason", poisoned()[0].Metadata.Get(middleware.ReasonForPoisonedKey), errRefused.Error())
		s.requireDead(t)
		s.RequireOnce(t)
	})

	forEachEngine(t, "retries outside are attempts in transactions of their own", func(t *testing.T, db *testdb.DB) {
		s := newStation(t, db)
		s.handle = failing(n)
		s.outside = []message.HandlerMiddleware{retry(n)}
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), 1)
		require.Equal(t, "runs", s.runs.of("order-1"), n+1)
		s.RequireOnce(t, "order-1")
	})
}

func TestMaxAttemptsWithOtherMiddlewares(t *testing.T) {
	t.Parallel()

	both(t, "each retry outside counts", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.outside = []message.HandlerMiddleware{retry(n - 2)} // one delivery is not enough, two are
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), 2)
		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.requireDead(t, "order-1")
	})

	both(t, "a poison queue outside gets nothing where retries come to the last attempt", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.outside = []message.HandlerMiddleware{s.poisonQueue(t), retry(n)}
		poisoned := running.Collect(t, s.pubSub, poison)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.requireDead(t, "order-1")
		require.Equal(t, "poisoned", len(poisoned()), 0)
	})

	both(t, "a poison queue that comes first takes the message, and nothing is dead", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.outside = []message.HandlerMiddleware{s.poisonQueue(t), retry(n - 2)}
		poisoned := running.Collect(t, s.pubSub, poison)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "runs", s.runs.of("order-1"), n-1)
		require.Equal(t, "poisoned", len(poisoned()), 1)
		s.requireDead(t)
	})

	both(t, "a recoverer outside changes nothing", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = func(int, *message.Message) ([]*message.Message, error) { panic("no such customer: 42") }
		s.outside = []message.HandlerMiddleware{middleware.Recoverer}
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		letter := s.requireDead(t, "order-1")[0]
		require.Equal(t, "attempts", letter.Attempts, n)
		require.Equal(t, "deliveries", s.deliveries.of("order-1"), n)
	})
}
