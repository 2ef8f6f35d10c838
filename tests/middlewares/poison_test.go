package middlewares_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
)

// watched is a publisher that runs a function before it publishes.
type watched struct {
	message.Publisher
	before func(msg *message.Message)
}

func (w watched) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		w.before(msg)
	}

	return w.Publisher.Publish(topic, messages...)
}

func TestPoisonQueue(t *testing.T) {
	t.Parallel()

	t.Run("outside publishes after the roll-back, and the event can be handled when it is put back", func(t *testing.T) {
		t.Parallel()

		var (
			s    = newStation(t)
			ib   = s.db.New(t)
			w    = s.failing(1)
			open []int
		)

		poisoned := running.Collect(t, s.pubsub, poison)
		mw, err := middleware.PoisonQueue(watched{s.pubsub, func(*message.Message) {
			open = append(open, s.openTransactions())
		}}, poison)
		require.OK(t, err)

		s.start(t, w, mw, ib.Middleware)
		s.publish(t, newOrder("e1"))

		s.requireNothing(t)
		require.Equal(t, "transactions open while it was published", open, []int{0})
		require.Equal(t, "poisoned messages", len(poisoned()), 1)

		dead := poisoned()[0]
		require.Equal(t, "id", dead.UUID, "e1")
		require.Equal(t, "reason", dead.Metadata.Get(middleware.ReasonForPoisonedKey), errBusiness.Error())
		require.Equal(t, "handler", dead.Metadata.Get(middleware.PoisonedHandlerKey), "billing")

		s.publish(t, dead)
		w.requireRuns(t, 2)
		s.db.RequireOnce(t, "e1")
	})

	// watermill 696
	t.Run("outside publishes what fails because the router is closing", func(t *testing.T) {
		t.Parallel()

		var (
			s         = newStation(t)
			ib        = s.db.New(t)
			graveyard = newPubSub(t) // the router closes the one that it reads from
			entered   = make(chan struct{})
		)

		w := s.work(func(_ int, msg *message.Message) error {
			close(entered)
			<-msg.Context().Done()

			return msg.Context().Err()
		})

		poisoned := running.Collect(t, graveyard, poison)
		mw, err := middleware.PoisonQueue(graveyard, poison)
		require.OK(t, err)

		s.start(t, w, mw, ib.Middleware)

		published := make(chan error, 1)

		go func() { published <- s.pubsub.Publish(orders, newOrder("e1")) }()

		require.Await(t, "the handler", entered)
		require.OK(t, s.Close())
		require.OK(t, require.Await(t, "the publisher", published))

		require.Equal(t, "poisoned messages", len(poisoned()), 1)
		s.requireNothing(t)
	})

	t.Run("outside, with a filter, takes messages without an id and leaves others to be redelivered", func(t *testing.T) {
		t.Parallel()

		var (
			s  = newStation(t)
			ib = s.db.New(t)
			w  = s.failing(1)
		)

		poisoned := running.Collect(t, s.pubsub, poison)
		mw, err := middleware.PoisonQueueWithFilter(s.pubsub, poison, func(err error) bool {
			return errors.Is(err, inbox.ErrNoEventID)
		})
		require.OK(t, err)

		s.start(t, w, mw, ib.Middleware)
		s.publish(t, message.NewMessage("", message.Payload("from elsewhere")))
		s.publish(t, newOrder("e1"))

		require.Equal(t, "poisoned messages", len(poisoned()), 1)
		require.Equal(t, "poisoned payload", string(poisoned()[0].Payload), "from elsewhere")

		reason := poisoned()[0].Metadata.Get(middleware.ReasonForPoisonedKey)
		if !strings.Contains(reason, inbox.ErrNoEventID.Error()) {
			t.Errorf("the reason does not say what is wrong: %s", reason)
		}

		w.requireRuns(t, 2)
		s.db.RequireOnce(t, "e1")
	})

	t.Run("danger: inside, what the failed handler wrote is committed and recorded as done", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.failing(1)
		poisoned := running.Collect(t, s.pubsub, poison)
		mw, err := middleware.PoisonQueue(s.pubsub, poison)
		require.OK(t, err)

		s.start(t, w, ib.Middleware, mw)
		s.publish(t, newOrder("e1"))
		s.publish(t, poisoned()[0]) // put back: a duplicate

		w.requireRuns(t, 1)
		s.requireRecorded(t, 1)
	})
}
