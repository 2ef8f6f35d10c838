package middlewares_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
)

func TestInstantAck(t *testing.T) {
	t.Parallel()

	t.Run("outside is refused with ErrAlreadyAcked and the handler does not run", func(t *testing.T) {
		t.Parallel()

		var (
			s  = newStation(t)
			ib = s.db.New(t)
			w  = s.work(nil)
			l  log
		)

		s.start(t, w, l.middleware, middleware.InstantAck, ib.Middleware)
		s.publish(t, newOrder("e1"))

		require.Eventually(t, "the delivery ended", func() bool { return len(l.deliveries()) == 1 })
		require.ErrorIs(t, l.deliveries()[0], inbox.ErrAlreadyAcked)
		w.requireRuns(t, 0)
		s.requireNothing(t)
	})

	t.Run("danger: inside, the message is acked before the commit, and lost when the handler fails", func(t *testing.T) {
		t.Parallel()

		var (
			s  = newStation(t)
			ib = s.db.New(t)
			w  = s.failing(1)
			l  log
		)

		s.start(t, w, l.middleware, ib.Middleware, middleware.InstantAck)
		s.publish(t, newOrder("e1"))

		require.Eventually(t, "the delivery ended", func() bool { return len(l.deliveries()) == 1 })

		if l.deliveries()[0] == nil {
			t.Error("the handler did not fail")
		}

		s.requireNothing(t)
	})
}

// seen is what a Deduplicator asks. The one that Watermill provides leaves a goroutine behind.
type seen struct{ keys sync.Map }

func (s *seen) IsDuplicate(_ context.Context, key string) (bool, error) {
	_, known := s.keys.LoadOrStore(key, nil)

	return known, nil
}

// camel 24809: the id stays in memory when the handler failed.
func TestDeduplicator(t *testing.T) {
	t.Parallel()

	deduplicator := func() message.HandlerMiddleware {
		d := &middleware.Deduplicator{
			KeyFactory: middleware.NewMessageHasherSHA256(1024),
			Repository: &seen{},
			Timeout:    time.Second,
		}

		return d.Middleware
	}

	t.Run("is not needed: without it the failed message is handled by its redelivery, once", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(1)

		s.start(t, w, ib.Middleware)
		s.publish(t, newOrder("e1"))
		s.publish(t, newOrder("e1"))

		w.requireRuns(t, 2)
		s.db.RequireOnce(t, "e1")
	})

	t.Run("danger: outside, it drops the redelivery of a message that failed", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(1)

		s.start(t, w, deduplicator(), ib.Middleware)
		s.publish(t, newOrder("e1"))

		w.requireRuns(t, 1)
		s.requireNothing(t)
	})

	t.Run("danger: inside, the redelivery is even put on record as handled", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(1)

		s.start(t, w, ib.Middleware, deduplicator())
		s.publish(t, newOrder("e1"))

		w.requireRuns(t, 1)
		s.db.RequireOnce(t)
		s.requireRecorded(t, 1)
	})
}
