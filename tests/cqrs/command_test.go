package cqrs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
)

// placing returns a command handler that writes its effect, and fails in its first runs.
func (s *service) placing(runs *int, failures int) cqrs.CommandHandler {
	return cqrs.NewCommandHandler("place-order", func(ctx context.Context, cmd *placeOrder) error {
		if err := s.note(ctx, "place "+cmd.Order); err != nil {
			return err
		}

		if *runs++; *runs <= failures {
			return errBusiness
		}

		return nil
	})
}

func TestCommandProcessor(t *testing.T) {
	t.Parallel()

	t.Run("a command that fails is rolled back, run again by its redelivery, and done once", func(t *testing.T) {
		t.Parallel()

		var runs int

		s := newService(t)
		s.addCommandHandler(t, false, nil, s.placing(&runs, 2))
		s.start(t)

		for range 3 {
			s.deliver(t, "c1", placeOrder{"o1"})
		}

		require.Equal(t, "runs", runs, 3)
		s.db.RequireOnce(t, "place o1")
		s.requireRecorded(t, "place-order placeOrder c1")
	})

	t.Run("danger: AckCommandHandlingErrors commits half the work and records it as done", func(t *testing.T) {
		t.Parallel()

		var runs int

		s := newService(t)
		s.addCommandHandler(t, true, nil, s.placing(&runs, 1))
		s.start(t)

		for range 2 {
			s.deliver(t, "c1", placeOrder{"o1"})
		}

		require.Equal(t, "runs", runs, 1)
		s.db.RequireOnce(t, "place o1") // by the run that failed
		s.requireRecorded(t, "place-order placeOrder c1")
	})

	t.Run("with AckCommandHandlingErrors, InTx undoes the work; the command is recorded", func(t *testing.T) {
		t.Parallel()

		var runs int

		s := newService(t)
		s.addCommandHandler(t, true, func(p cqrs.CommandProcessorOnHandleParams) error {
			return inbox.InTx(p.Message.Context(), func(*sql.Tx) error {
				return p.Handler.Handle(p.Message.Context(), p.Command)
			})
		}, s.placing(&runs, 1))
		s.start(t)

		for range 2 {
			s.deliver(t, "c1", placeOrder{"o1"})
		}

		s.deliver(t, "c2", placeOrder{"o2"})

		require.Equal(t, "runs", runs, 2)
		s.db.RequireOnce(t, "place o2")
		s.requireRecorded(t, "place-order placeOrder c1", "place-order placeOrder c2")
	})

	t.Run("in its place, ErrSkip from OnHandle acks a failed command that is rolled back", func(t *testing.T) {
		t.Parallel()

		var runs int

		s := newService(t)
		s.addCommandHandler(t, false, func(p cqrs.CommandProcessorOnHandleParams) error {
			err := p.Handler.Handle(p.Message.Context(), p.Command)
			if errors.Is(err, errBusiness) {
				return fmt.Errorf("%w: %w", inbox.ErrSkip, err)
			}

			return err
		}, s.placing(&runs, 1))
		s.start(t)

		s.deliver(t, "c1", placeOrder{"o1"})
		require.Equal(t, "runs", runs, 1)
		s.db.RequireOnce(t)
		s.requireRecorded(t)

		s.deliver(t, "c1", placeOrder{"o1"}) // sent again: it is not on record
		require.Equal(t, "runs", runs, 2)
		s.db.RequireOnce(t, "place o1")
	})
}
