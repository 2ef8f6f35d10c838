package middlewares_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/sony/gobreaker"

	"github.com/watermill-inbox/inbox/tests/require"
)

func TestThrottle(t *testing.T) {
	t.Parallel()

	t.Run("outside has messages wait without a transaction", func(t *testing.T) {
		t.Parallel()

		const messages = 3

		var (
			s       = newStation(t)
			ib      = s.db.New(t)
			l       log
			arrived sync.WaitGroup
			open    = make(chan int, messages)
		)

		// All messages are there before the first may pass.
		arrived.Add(messages)

		meet := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				arrived.Done()
				arrived.Wait()

				return h(msg)
			}
		}
		w := s.work(func(int, *message.Message) error {
			open <- s.openTransactions()

			return nil
		})

		s.pubsub = gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}) // has many in flight
		s.start(t, w, l.middleware, meet, middleware.NewThrottle(2, time.Second).Middleware, ib.Middleware)

		require.OK(t, s.pubsub.Publish(orders, newOrder("e1"), newOrder("e2"), newOrder("e3")))
		require.Equal(t, "transactions open when the first handler ran", require.Await(t, "the first handler", open), 1)
		require.Eventually(t, "all are handled", func() bool { return len(l.deliveries()) == messages })
		s.db.RequireOnce(t, "e1", "e2", "e3")
	})
}

func TestCircuitBreaker(t *testing.T) {
	t.Parallel()

	t.Run("inside counts what handlers did, not duplicates, and what it refuses is rolled back", func(t *testing.T) {
		t.Parallel()

		var (
			s        = newStation(t)
			ib       = s.db.New(t)
			outer    log
			mu       sync.Mutex
			outcomes []error
		)

		breaker := middleware.NewCircuitBreaker(gobreaker.Settings{
			Timeout:     50 * time.Millisecond,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures == 2 },
			IsSuccessful: func(err error) bool {
				mu.Lock()
				defer mu.Unlock()

				outcomes = append(outcomes, err)

				return err == nil
			},
		})

		w := s.work(func(run int, _ *message.Message) error {
			if run == 2 || run == 3 {
				return errBusiness
			}

			return nil
		})

		s.start(t, w, outer.middleware, ib.Middleware, breaker.Middleware)
		s.publish(t, newOrder("e1"))

		for range 3 {
			s.publish(t, newOrder("e1"))
		}

		s.publish(t, newOrder("e2")) // fails twice, is refused until the breaker lets one through, and succeeds

		refused := 0

		for _, err := range outer.deliveries() {
			if errors.Is(err, gobreaker.ErrOpenState) {
				refused++
			}
		}

		if refused == 0 {
			t.Error("the breaker never opened")
		}

		require.Equal(t, "outcomes that the breaker counted", outcomes, []error{nil, errBusiness, errBusiness, nil})
		w.requireRuns(t, 4)
		s.db.RequireOnce(t, "e1", "e2")
		s.requireRecorded(t, 2)
	})
}
