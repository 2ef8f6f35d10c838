package middlewares_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox/tests/require"
)

func TestTimeout(t *testing.T) {
	t.Parallel()

	const short = 100 * time.Millisecond

	// sleepy waits for the database in its first run, longer than any timeout.
	sleepy := func(contexts *[]error) func(run int, msg *message.Message) error {
		return func(run int, msg *message.Message) error {
			*contexts = append(*contexts, msg.Context().Err())

			if run == 1 {
				return exec(msg, "SELECT pg_sleep(60)")
			}

			return nil
		}
	}

	t.Run("inside ends the handler, rolls back, and leaves the next attempt a live context", func(t *testing.T) {
		t.Parallel()

		var (
			s        = newStation(t)
			ib       = s.db.New(t)
			l        log
			contexts []error
			w        = s.work(sleepy(&contexts))
		)

		s.start(t, w, l.middleware, retry(1).Middleware, ib.Middleware, middleware.Timeout(short))
		s.publish(t, newOrder("e1"))

		require.Equal(t, "contexts of the attempts", contexts, []error{nil, nil})
		require.Equal(t, "deliveries", l.deliveries(), []error{nil})
		s.db.RequireOnce(t, "e1")
	})

	t.Run("outside does not end the transaction under a handler that goes on", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)
		w := s.work(func(_ int, msg *message.Message) error {
			<-msg.Context().Done()

			return nil
		})

		s.start(t, w, middleware.Timeout(short), ib.Middleware)
		s.publish(t, newOrder("e1"))

		w.requireRuns(t, 1)
		s.db.RequireOnce(t, "e1")
		s.requireRecorded(t, 1)
	})

	t.Run("danger: outside, it leaves a dead context, and attempts after the first are in vain", func(t *testing.T) {
		t.Parallel()

		var (
			s   = newStation(t)
			ib  = s.db.New(t)
			all log
			l   log
			w   = s.work(func(run int, msg *message.Message) error {
				if run == 1 {
					return exec(msg, "SELECT pg_sleep(60)")
				}

				return nil
			})
		)

		s.start(t, w, l.middleware, retry(2).Middleware, all.middleware, middleware.Timeout(short), ib.Middleware)
		s.publish(t, newOrder("e1"))

		errs := all.deliveries() // two deliveries, the first of three attempts
		require.Equal(t, "attempts", len(errs), 4)

		for _, err := range errs[1:3] {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
				t.Errorf("an attempt on a dead context ended with %v", err)
			}
		}

		require.Equal(t, "deliveries", len(l.deliveries()), 2)
		s.db.RequireOnce(t, "e1") // nothing is lost: the broker's redelivery has a context of its own
	})
}
