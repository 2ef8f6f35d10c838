package conformance_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestRouter(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "redelivers after an error and a panic until the event is handled once", func(t *testing.T, db *testdb.DB) {
		ib, s, w := db.New(t), newStation(t), newWorker(db)
		w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
			switch run {
			case 1:
				return nil, errors.New("failed")
			case 2:
				panic("oops")
			default:
				return nil, nil
			}
		}

		s.AddMiddleware(ib.Middleware)
		s.AddConsumerHandler("billing", "orders", s.pubsub, asConsumer(w.handle))
		s.start(t)

		for range 2 {
			s.publish(t, "orders", delivery("e1"))
		}

		w.requireRuns(t, 3)
		db.RequireOnce(t, "e1")
	})

	// watermill 579
	forEachEngine(t, "Recoverer and Retry around the inbox see each attempt in a transaction of its own", func(t *testing.T, db *testdb.DB) {
		ib, s, w := db.New(t), newStation(t), newWorker(db)
		w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run < 3 {
				panic("oops")
			}

			return nil, nil
		}

		s.AddMiddleware(middleware.Retry{MaxRetries: 5}.Middleware, middleware.Recoverer, ib.Middleware)
		s.AddConsumerHandler("billing", "orders", s.pubsub, asConsumer(w.handle))
		s.start(t)
		s.publish(t, "orders", delivery("e1"))
		w.requireRuns(t, 3)
		db.RequireOnce(t, "e1")
	})

	// watermill 568, 669
	forEachEngine(t, "Close during a handler lets it commit", func(t *testing.T, db *testdb.DB) {
		ib, s, w := db.New(t), newStation(t), newWorker(db)
		entered, cancelled := make(chan struct{}), make(chan struct{})
		w.then = func(_ int, msg *message.Message) ([]*message.Message, error) {
			close(entered)
			<-msg.Context().Done() // the router has begun to close
			close(cancelled)

			return nil, effectNamed(db, msg.Context(), "after")
		}

		s.AddMiddleware(ib.Middleware)
		s.AddConsumerHandler("billing", "orders", s.pubsub, asConsumer(w.handle))
		s.start(t)

		var published sync.WaitGroup

		published.Go(func() { _ = s.pubsub.Publish("orders", delivery("e1")) })
		require.Await(t, "the handler", entered)
		require.OK(t, s.Close())
		require.Await(t, "the handler's cancellation", cancelled)
		published.Wait()
		db.RequireOnce(t, "e1", "after")
		requireRecorded(t, db, 1)
	})

	for name, add := range map[string]func(s *station, ib *inbox.Inbox, h *message.Handler){
		"the router": func(s *station, ib *inbox.Inbox, _ *message.Handler) { s.AddMiddleware(ib.Middleware) },
		"a handler":  func(_ *station, ib *inbox.Inbox, h *message.Handler) { h.AddMiddleware(ib.Middleware) },
		"router and handler": func(s *station, ib *inbox.Inbox, h *message.Handler) {
			s.AddMiddleware(ib.Middleware)
			h.AddMiddleware(ib.Middleware)
		},
		"the router, twice": func(s *station, ib *inbox.Inbox, _ *message.Handler) { s.AddMiddleware(ib.Middleware, ib.Middleware) },
		"handler then router": func(s *station, ib *inbox.Inbox, h *message.Handler) {
			h.AddMiddleware(ib.Middleware)
			s.AddMiddleware(ib.Middleware)
		},
	} {
		forEachEngine(t, "added to "+name+" handles once", func(t *testing.T, db *testdb.DB) {
			var calls told

			ib, s, w := db.New(t, inbox.WithHooks(calls.hooks())), newStation(t), returning(db, delivery("o1"))
			add(s, ib, s.AddHandler("billing", "orders", s.pubsub, "invoices", s.pubsub, w.handle))

			invoices := s.collect(t, "invoices")
			s.start(t)

			for range 2 {
				s.publish(t, "orders", delivery("e1"))
			}

			require.Equal(t, "hooks", calls.calls, []string{"processed billing e1", "duplicate billing e1"})
			require.Equal(t, "published", uuids(invoices()), []string{"o1", "o1"})
			db.RequireOnce(t, "e1")
			requireRecorded(t, db, 1)
		})
	}

	forEachEngine(t, "a context that Pub/Sub keeps does not take another handler's message for the first one", func(t *testing.T, db *testdb.DB) {
		ib, s := db.New(t), newStationWith(t, preservingContext)
		s.AddMiddleware(ib.Middleware)
		s.AddHandler("first", "a", s.pubsub, "b", s.pubsub, func(msg *message.Message) ([]*message.Message, error) {
			if err := effectNamed(db, msg.Context(), "first"); err != nil {
				return nil, err
			}

			return message.Messages{message.NewMessageWithContext(msg.Context(), msg.UUID, nil)}, nil
		})
		s.AddConsumerHandler("second", "b", s.pubsub, func(msg *message.Message) error {
			ev, _ := inbox.EventFromContext(msg.Context())
			require.Equal(t, "consumer", ev.Consumer, "second")

			return effectNamed(db, msg.Context(), "second")
		})
		s.start(t)

		for range 2 {
			s.publish(t, "a", delivery("e1"))
		}

		db.RequireOnce(t, "first", "second")
		requireRecorded(t, db, 2)
	})

	forEachPostgres(t, "a message published from within a handler has a transaction of its own", func(t *testing.T, db *testdb.DB) {
		ib, s := db.New(t), newStationWith(t, preservingContext)
		s.AddMiddleware(ib.Middleware)
		s.AddConsumerHandler("first", "a", s.pubsub, func(msg *message.Message) error {
			if err := effectNamed(db, msg.Context(), "undone"); err != nil {
				return err
			}

			// The second handler acks, and has committed, before the first returns.
			if err := s.pubsub.Publish("b", message.NewMessageWithContext(msg.Context(), msg.UUID, nil)); err != nil {
				return err
			}

			return inbox.ErrSkip
		})
		s.AddConsumerHandler("second", "b", s.pubsub, func(msg *message.Message) error {
			return effectNamed(db, msg.Context(), "second")
		})
		s.start(t)
		s.publish(t, "a", delivery("e1"))
		db.RequireOnce(t, "second")
	})
}

func TestSettledMessages(t *testing.T) {
	t.Parallel()

	for name, settle := range map[string]func(*message.Message) bool{"acked": (*message.Message).Ack, "nacked": (*message.Message).Nack} {
		forEachEngine(t, "a message that was "+name+" before is not handled", func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db), newWorker(db)
			msg := delivery("e1")
			settle(msg)

			_, err := deliver(ib, w.handle, msg)
			require.ErrorIs(t, err, inbox.ErrAlreadyAcked)
			w.requireRuns(t, 0)
			requireRecorded(t, db, 0)

			_, err = deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			db.RequireOnce(t, "e1")
		})
	}

	forEachEngine(t, "InstantAck outside is told", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		_, err := middleware.InstantAck(ib.Middleware(w.handle))(delivery("e1"))
		require.ErrorIs(t, err, inbox.ErrAlreadyAcked)
		w.requireRuns(t, 0)
	})

	forEachEngine(t, "the middleware itself neither acks nor nacks", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)

		for _, h := range []message.HandlerFunc{failing(db, errors.New("failed")).handle, newWorker(db).handle, newWorker(db).handle} {
			msg := delivery("e1")
			_, _ = deliver(ib, h, msg)

			select {
			case <-msg.Acked():
				t.Fatal("acked")
			case <-msg.Nacked():
				t.Fatal("nacked")
			default:
			}
		}
	})
}
