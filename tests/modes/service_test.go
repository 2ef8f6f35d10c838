package modes_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const (
	billing  = "billing" // the consumer
	orders   = "orders"
	invoices = "invoices"
)

// mode is how the inbox is put around a handler.
type mode string

const (
	sameTx            mode = "same-transaction"
	sameTxWithBacklog mode = "same-transaction with a backlog"
	stored            mode = "store-then-process"
	storedPlain       mode = "store-then-process without the middleware"
)

// service is one life of a service with one handler.
type service struct {
	*testdb.DB
	mode

	sub         message.Subscriber
	pub         message.Publisher // nil for a handler without outputs
	topic       string
	publishTo   string
	handlerName string // billing unless the consumer does not come from it
	options     []inbox.Option
	subscriber  []inbox.SubscriberOption
	outside     []message.HandlerMiddleware
	handle      message.HandlerFunc

	inbox *inbox.Inbox
}

// router puts the service together.
func (s *service) router() (*message.Router, error) {
	var err error

	options := append([]inbox.Option{inbox.WithTable(s.Inbox())}, s.options...)
	if s.inbox, err = inbox.New(s.DB.DB, s.Engine.Dialect, options...); err != nil {
		return nil, err
	}

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}

	router.AddMiddleware(s.outside...)

	if s.mode != storedPlain {
		router.AddMiddleware(s.inbox.Middleware)
	}

	settings := append([]inbox.SubscriberOption{
		inbox.WithConcurrency(poolSize - 2), inbox.WithLease(lease), inbox.WithBackoff(time.Millisecond, 50*time.Millisecond),
	}, s.subscriber...)
	sub := s.sub

	if s.mode == stored || s.mode == storedPlain {
		if sub, err = s.inbox.Subscriber(billing, sub, settings...); err != nil {
			return nil, err
		}
	}

	s.add(router, s.handlerName, sub)

	if s.mode == sameTxWithBacklog {
		backlog, err := s.inbox.Backlog(billing, settings...)
		if err != nil {
			return nil, err
		}

		s.add(router, s.handlerName+"-backlog", backlog)
	}

	return router, nil
}

// lease is long enough for a machine that is busy, and short enough to wait for what a dead process had.
const lease = 2 * time.Second

func (s *service) add(router *message.Router, name string, sub message.Subscriber) {
	if s.pub == nil {
		router.AddConsumerHandler(name, s.topic, sub, func(msg *message.Message) error {
			_, err := s.handle(msg)

			return err
		})

		return
	}

	router.AddHandler(name, s.topic, sub, s.publishTo, unclosed{s.pub}, s.handle)
}

// unclosed is a publisher that outlives a router.
type unclosed struct{ message.Publisher }

func (unclosed) Close() error { return nil }

// byTx writes an effect with the transaction of the context, and returns an invoice whose UUID is in the effect's note: a
// second run would make another one.
func byTx(db *testdb.DB) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := inbox.TxFromContext(msg.Context())
		if !ok {
			return nil, errors.New("the handler has no transaction")
		}

		invoice := newInvoice(msg.Context())

		return []*message.Message{invoice}, insert(msg.Context(), tx, db, invoice.UUID)
	}
}

// byInTx does the same with InTx alone.
func byInTx(db *testdb.DB) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		invoice := newInvoice(msg.Context())

		return []*message.Message{invoice}, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			return insert(msg.Context(), tx, db, invoice.UUID)
		})
	}
}

func insert(ctx context.Context, tx *sql.Tx, db *testdb.DB, note string) error {
	ev, _ := inbox.EventFromContext(ctx)
	query := "INSERT INTO " + db.Table("effects") + " (event, note) VALUES ($1, $2)"

	if _, err := tx.ExecContext(context.WithoutCancel(ctx), query, ev.ID, note); err != nil {
		return fmt.Errorf("writing the effect: %w", err)
	}

	return nil
}

// newInvoice returns an output that says whose it is.
func newInvoice(ctx context.Context) *message.Message {
	ev, _ := inbox.EventFromContext(ctx)
	invoice := message.NewMessage(watermill.NewUUID(), message.Payload("invoice for "+ev.ID))
	invoice.Metadata.Set("order", ev.ID)

	return invoice
}

// newOrder returns a message as a producer sends it: every sending has a UUID of its own, the event keeps its id.
func newOrder(id string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), message.Payload("order "+id))
	msg.Metadata.Set("event_id", id)
	msg.Metadata.Set("event_type", "placed")

	return msg
}
