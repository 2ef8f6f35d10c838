package middlewares_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox/tests/require"
)

// cycle has the orders that fail go to a poison queue, from which a requeuer on a router brings them back.
func (s *station) cycle(t testing.TB, requeueOn *message.Router) (poisonQueue message.HandlerMiddleware) {
	t.Helper()

	// Publish must not wait for the ack: the calls would wait for each other in a circle.
	s.pubsub = gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	graveyard := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})

	_, err := requeuer.NewRequeuer(requeuer.Config{
		Subscriber:     graveyard,
		SubscribeTopic: poison,
		Publisher:      s.pubsub,
		GeneratePublishTopic: func(p requeuer.GeneratePublishTopicParams) (string, error) {
			return p.Message.Metadata.Get(middleware.PoisonedTopicKey), nil
		},
		Router: requeueOn,
	}, watermill.NopLogger{})
	require.OK(t, err)

	poisonQueue, err = middleware.PoisonQueue(graveyard, poison)
	require.OK(t, err)

	return poisonQueue
}

func TestRequeuer(t *testing.T) {
	t.Parallel()

	// Wolverine 1593
	t.Run("on a router without the inbox brings an event back as often as it fails", func(t *testing.T) {
		t.Parallel()

		s, other := newStation(t), newStation(t)
		ib := s.db.New(t)
		w := s.failing(2)
		poisonQueue := s.cycle(t, other.Router)

		s.AddMiddleware(poisonQueue, ib.Middleware)
		s.start(t, w)
		other.run(t)

		require.OK(t, s.pubsub.Publish(orders, newOrder("e1")))
		require.Eventually(t, "the third run is committed", func() bool { return s.db.Effects(t)["e1"] > 0 })
		w.requireRuns(t, 3)
		s.db.RequireOnce(t, "e1")
		s.requireRecorded(t, 1)
	})

	t.Run("on the same router works when the inbox is on the handlers only", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(2)
		poisonQueue := s.cycle(t, s.Router)

		s.start(t, w, poisonQueue, ib.Middleware)

		require.OK(t, s.pubsub.Publish(orders, newOrder("e1")))
		require.Eventually(t, "the third run is committed", func() bool { return s.db.Effects(t)["e1"] > 0 })
		s.db.RequireOnce(t, "e1")
		s.requireRecorded(t, 1)
	})

	t.Run("danger: behind a router's inbox it is a consumer too, and drops what fails twice", func(t *testing.T) {
		t.Parallel()

		var (
			s  = newStation(t)
			ib = s.db.New(t)
			w  = s.failing(2)
			l  log
		)

		poisonQueue := s.cycle(t, s.Router)

		s.AddMiddleware(l.middleware, poisonQueue, ib.Middleware)
		s.start(t, w)

		require.OK(t, s.pubsub.Publish(orders, newOrder("e1")))
		require.Eventually(t, "two orders and two poisoned messages were acked", func() bool { return len(l.deliveries()) == 4 })
		w.requireRuns(t, 2)
		s.db.RequireOnce(t)
		s.requireRecorded(t, 1) // by the requeuer
	})
}
