package middlewares_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
)

func TestIgnoreErrors(t *testing.T) {
	t.Parallel()

	ignore := middleware.NewIgnoreErrors([]error{errBusiness})

	t.Run("outside acks after the roll-back, and the outputs of the handler are not published", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(1)
		w.outs = oneReceipt
		published := running.Collect(t, s.pubsub, receipts)

		s.startPublishing(t, s.pubsub, w, ignore.Middleware, ib.Middleware)
		s.publish(t, newOrder("e1"))

		w.requireRuns(t, 1)
		require.Equal(t, "published receipts", len(published()), 0)
		s.requireNothing(t)

		s.publish(t, newOrder("e1")) // it is not on record, so a redelivery runs
		w.requireRuns(t, 2)
		s.db.RequireOnce(t, "e1")
	})

	t.Run("danger: inside, half the work is committed, published, and on record as done", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(1)
		w.outs = oneReceipt
		published := running.Collect(t, s.pubsub, receipts)

		s.startPublishing(t, s.pubsub, w, ib.Middleware, ignore.Middleware)
		s.publish(t, newOrder("e1"))

		w.requireRuns(t, 1)
		require.Equal(t, "published receipts", len(published()), 1)
		s.db.RequireOnce(t, "e1")
		s.requireRecorded(t, 1)
	})
}
