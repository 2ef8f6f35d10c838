package middlewares_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
)

// watermill 579
func TestRecoverer(t *testing.T) {
	t.Parallel()

	for where, order := range map[string]func(mw message.HandlerMiddleware, ib *inbox.Inbox) []message.HandlerMiddleware{
		"outside": func(mw message.HandlerMiddleware, ib *inbox.Inbox) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{mw, ib.Middleware}
		},
		"inside": func(mw message.HandlerMiddleware, ib *inbox.Inbox) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{ib.Middleware, mw}
		},
	} {
		t.Run(where+" turns a panic into an error, and the event is handled by the next delivery", func(t *testing.T) {
			t.Parallel()

			var (
				s      = newStation(t)
				l      log
				failed []error
			)

			ib := s.db.New(t, inbox.WithHooks(inbox.Hooks{Failed: func(_ context.Context, _ inbox.Event, err error) {
				failed = append(failed, err)
			}}))
			w := s.work(func(run int, _ *message.Message) error {
				if run == 1 {
					panic("oops")
				}

				return nil
			})

			s.start(t, w, append([]message.HandlerMiddleware{l.middleware}, order(middleware.Recoverer, ib)...)...)
			s.publish(t, newOrder("e1"))

			errs := l.deliveries()
			require.Equal(t, "deliveries", len(errs), 2)

			var recovered middleware.RecoveredPanicError
			if !errors.As(errs[0], &recovered) || recovered.V != "oops" {
				t.Errorf("the first delivery ended with %v", errs[0])
			}

			require.OK(t, errs[1])
			require.Equal(t, "failures told", len(failed), 1)
			s.db.RequireOnce(t, "e1")
			s.requireRecorded(t, 1)
		})
	}
}
