package cqrs_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
)

// noting returns an event handler that writes its name and the order, and fails in its first runs.
func (s *service) noting(name string, failures int) func(context.Context, *orderPlaced) error {
	runs := 0

	return func(ctx context.Context, ev *orderPlaced) error {
		if err := s.note(ctx, name+" "+ev.Order); err != nil {
			return err
		}

		if runs++; runs <= failures {
			return errBusiness
		}

		return nil
	}
}

func TestEventProcessor(t *testing.T) {
	t.Parallel()

	// NServiceBus.NHibernate 117, MassTransit 3543
	t.Run("each handler is a consumer by its own name and sees an event once", func(t *testing.T) {
		t.Parallel()

		s := newService(t)
		s.addEventHandlers(t, false,
			cqrs.NewEventHandler("invoice", s.noting("invoice", 0)),
			cqrs.NewEventHandler("ship", s.noting("ship", 2)))
		s.start(t)

		for range 3 {
			s.deliver(t, "e1", orderPlaced{"o1"})
		}

		s.db.RequireOnce(t, "invoice o1", "ship o1")
		s.requireRecorded(t, "invoice orderPlaced e1", "ship orderPlaced e1")
	})

	t.Run("the event bus gives every Publish an id of its own, so publishing again is another event", func(t *testing.T) {
		t.Parallel()

		s := newService(t)
		s.addEventHandlers(t, false, cqrs.NewEventHandler("invoice", s.noting("invoice", 0)))
		s.start(t)

		config := cqrs.EventBusConfig{
			GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "shop", nil },
			Marshaler:            marshaler,
		}
		bus, err := cqrs.NewEventBusWithConfig(s.pubsub, config)
		require.OK(t, err)

		// The way out: an id that the producer derives from what happened.
		config.OnPublish = func(p cqrs.OnEventSendParams) error {
			p.Message.Metadata.Set("event_id", "placed "+p.Event.(orderPlaced).Order)

			return nil
		}
		stable, err := cqrs.NewEventBusWithConfig(s.pubsub, config)
		require.OK(t, err)

		for range 2 {
			require.OK(t, bus.Publish(t.Context(), orderPlaced{"o1"}))
			require.OK(t, stable.Publish(t.Context(), orderPlaced{"o2"}))
		}

		require.Equal(t, "effects", s.db.Effects(t), map[string]int{"invoice o1": 2, "invoice o2": 1})
	})

	t.Run("AckOnUnknownEvent records the event as handled", func(t *testing.T) {
		t.Parallel()

		s := newService(t)
		s.addEventHandlers(t, true, cqrs.NewEventHandler("invoice", s.noting("invoice", 0)))
		s.start(t)

		s.deliver(t, "e1", orderCancelled{"o1"})
		s.db.RequireOnce(t)
		s.requireRecorded(t, "invoice orderCancelled e1")
	})
}

func TestEventGroupProcessor(t *testing.T) {
	t.Parallel()

	t.Run("the handlers of a group are one consumer, by the group's name", func(t *testing.T) {
		t.Parallel()

		s := newService(t)
		s.addGroup(t, "order-events", false,
			cqrs.NewGroupEventHandler(s.noting("invoice", 0)),
			cqrs.NewGroupEventHandler(s.noting("ship", 0)))
		s.start(t)

		for range 3 {
			s.deliver(t, "e1", orderPlaced{"o1"})
		}

		s.db.RequireOnce(t, "invoice o1", "ship o1")
		s.requireRecorded(t, "order-events orderPlaced e1")
	})

	t.Run("when the second handler fails, the first is rolled back, and redelivery does both", func(t *testing.T) {
		t.Parallel()

		var afterFailure map[string]int

		s := newService(t)
		ship := s.noting("ship", 1)
		invoices := 0

		s.addGroup(t, "order-events", false,
			cqrs.NewGroupEventHandler(func(ctx context.Context, ev *orderPlaced) error {
				if invoices++; invoices == 2 {
					afterFailure = s.db.Effects(t)
				}

				return s.note(ctx, "invoice "+ev.Order)
			}),
			cqrs.NewGroupEventHandler(ship))
		s.start(t)

		for range 2 {
			s.deliver(t, "e1", orderPlaced{"o1"})
		}

		require.Equal(t, "runs of the first handler", invoices, 2)
		require.Equal(t, "effects after the failure", afterFailure, map[string]int{})
		s.db.RequireOnce(t, "invoice o1", "ship o1")
		s.requireRecorded(t, "order-events orderPlaced e1")
	})

	t.Run("danger: AckOnUnknownEvent hides the event from a handler that is added later", func(t *testing.T) {
		t.Parallel()

		s := newService(t)
		s.addGroup(t, "order-events", true, cqrs.NewGroupEventHandler(s.noting("invoice", 0)))
		s.start(t)
		s.deliver(t, "e1", orderCancelled{"o1"})
		s.requireRecorded(t, "order-events orderCancelled e1")

		next := s.nextVersion(t)
		next.addGroup(t, "order-events", true, next.refunding())
		next.start(t)
		next.deliver(t, "e1", orderCancelled{"o1"})
		next.db.RequireOnce(t)
	})

	t.Run("ErrSkip from a middleware leaves unknown events to a handler that is added later", func(t *testing.T) {
		t.Parallel()

		s := newService(t)
		s.AddMiddleware(skipUnless(marshaler.Name(orderPlaced{})))
		s.addGroup(t, "order-events", false, cqrs.NewGroupEventHandler(s.noting("invoice", 0)))
		s.start(t)
		s.deliver(t, "e1", orderCancelled{"o1"})
		s.deliver(t, "e2", orderPlaced{"o2"})
		s.requireRecorded(t, "order-events orderPlaced e2")

		next := s.nextVersion(t)
		next.addGroup(t, "order-events", false, next.refunding())
		next.start(t)
		next.deliver(t, "e1", orderCancelled{"o1"})
		next.db.RequireOnce(t, "invoice o2", "refund o1")
	})
}

// nextVersion is the service after a deployment: the same database, other handlers.
func (s *service) nextVersion(t testing.TB) *service {
	t.Helper()

	return newServiceOn(t, s.db)
}

func (s *service) refunding() cqrs.GroupEventHandler {
	return cqrs.NewGroupEventHandler(func(ctx context.Context, ev *orderCancelled) error {
		return s.note(ctx, "refund "+ev.Order)
	})
}

func skipUnless(known string) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if marshaler.NameFromMessage(msg) != known {
				return nil, inbox.ErrSkip
			}

			return h(msg)
		}
	}
}
