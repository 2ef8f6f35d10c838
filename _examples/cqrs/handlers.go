package main

import (
	"context"
	"errors"

	"github.com/watermill-inbox/inbox"
)

type (
	placeOrder  struct{ Order string }
	orderPlaced struct{ Order string }
)

// place handles the command. It publishes the event before the commit: should the commit fail, the command comes again
// and so does the event, under the same id (see service.go), which makes it a duplicate.
func (s *service) place(ctx context.Context, cmd *placeOrder) error {
	if err := s.insert(ctx, `INSERT INTO orders (id) VALUES (?)`, cmd.Order); err != nil {
		return err
	}

	return s.eventBus.Publish(ctx, orderPlaced(*cmd))
}

// pay and reserve are one group: one transaction, one row in the inbox. What pay wrote goes away when reserve fails.
func (s *service) pay(ctx context.Context, ev *orderPlaced) error {
	return s.insert(ctx, `INSERT INTO payments (order_id) VALUES (?)`, ev.Order)
}

func (s *service) reserve(ctx context.Context, ev *orderPlaced) error {
	if err := s.insert(ctx, `INSERT INTO reservations (order_id) VALUES (?)`, ev.Order); err != nil {
		return err
	}

	if _, tried := s.tried.LoadOrStore(ev.Order, true); !tried {
		s.failures.Add(1)

		return errors.New("the warehouse does not answer")
	}

	return nil
}

// insert writes through the transaction that the inbox has put into the handler's context.
func (s *service) insert(ctx context.Context, query, order string) error {
	s.runs.Add(1)

	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return errors.New("no inbox around the handler")
	}

	_, err := tx.ExecContext(ctx, query, order)

	return err
}
