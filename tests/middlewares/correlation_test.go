package middlewares_test

import (
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
)

// failsFirst is a publisher whose first Publish fails.
type failsFirst struct {
	message.Publisher
	calls *atomic.Int32
}

func (f failsFirst) Publish(topic string, messages ...*message.Message) error {
	if f.calls.Add(1) == 1 {
		return errors.New("the broker is away")
	}

	return f.Publisher.Publish(topic, messages...)
}

// correlated is an order with a correlation id.
func correlated(id, correlation string) *message.Message {
	msg := newOrder(id)
	middleware.SetCorrelationID(correlation, msg)

	return msg
}

func oneReceipt() []*message.Message { return message.Messages{message.NewMessage("receipt", nil)} }

func TestCorrelationID(t *testing.T) {
	t.Parallel()

	t.Run("inside is stored with the outputs, which carry it when they are published again", func(t *testing.T) {
		t.Parallel()

		var (
			s     = newStation(t)
			ib    = s.db.New(t)
			w     = s.work(nil)
			calls atomic.Int32
		)

		w.outs = oneReceipt
		published := running.Collect(t, s.pubsub, receipts)

		s.startPublishing(t, failsFirst{s.pubsub, &calls}, w, ib.Middleware, middleware.CorrelationID)
		s.publish(t, correlated("e1", "c1"))
		s.publish(t, newOrder("e1")) // published again by a producer that does not know the correlation any more

		w.requireRuns(t, 1)
		require.Equal(t, "calls of Publish", calls.Load(), 3)
		require.Equal(t, "published receipts", len(published()), 2)

		for _, receipt := range published() {
			require.Equal(t, "receipt", receipt.UUID, "receipt")
			require.Equal(t, "correlation", middleware.MessageCorrelationID(receipt), "c1")
		}
	})

	t.Run("inside reaches outputs that go through an outbox; outside comes too late for them", func(t *testing.T) {
		t.Parallel()

		for where, want := range map[string]string{"inside": "c1", "outside": ""} {
			s := newStation(t)
			ib := s.db.New(t, inbox.WithOutbox(func(tx *sql.Tx) (message.Publisher, error) {
				return tablePublisher{tx, s.db.Table("effects")}, nil
			}))
			w := s.work(nil)
			w.outs = oneReceipt

			middlewares := []message.HandlerMiddleware{ib.Middleware, middleware.CorrelationID}
			if where == "outside" {
				middlewares[0], middlewares[1] = middlewares[1], middlewares[0]
			}

			s.startPublishing(t, s.pubsub, w, middlewares...)
			s.publish(t, correlated("e1", "c1"))

			var got string

			query := "SELECT note FROM " + s.db.Table("effects") + " WHERE event = 'receipt'"
			require.OK(t, s.db.QueryRowContext(t.Context(), query).Scan(&got))
			require.Equal(t, "correlation, "+where, got, want)
		}
	})
}

// tablePublisher is the simplest of outboxes.
type tablePublisher struct {
	tx    *sql.Tx
	table string
}

func (p tablePublisher) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		_, err := p.tx.ExecContext(msg.Context(), "INSERT INTO "+p.table+" (event, note) VALUES ($1, $2)",
			msg.UUID, middleware.MessageCorrelationID(msg))
		if err != nil {
			return err
		}
	}

	return nil
}

func (p tablePublisher) Close() error { return nil }
