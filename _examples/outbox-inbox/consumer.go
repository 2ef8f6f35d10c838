package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// consume charges for orders until ctx ends.
func consume(ctx context.Context, s *setting) error {
	ib, err := inbox.New(s.db, inbox.Postgres,
		inbox.WithTable(s.schema()+".inbox"),
		inbox.WithLogger(s.logger),
		// The invoices that the handler returns are written into this service's own outbox, with everything else.
		inbox.WithOutbox(s.publisherIn),
		inbox.WithHooks(inbox.Hooks{
			// Committed, and not acked yet.
			Processed: func(context.Context, inbox.Event) { s.holdHere() },
		}),
	)
	if err != nil {
		return err
	}

	if err := ib.Migrate(ctx); err != nil {
		return err
	}

	b, err := openBroker(ctx, s.config, s.logger)
	if err != nil {
		return err
	}

	r, err := message.NewRouter(message.RouterConfig{}, s.logger)
	if err != nil {
		return err
	}

	r.AddMiddleware(s.recordDeliveries, ib.Middleware)
	r.AddHandler("billing", s.ordersTopic(), b.subscriber, invoicesTopic, noPublisher{}, s.chargeOrder)

	err = runRouter(ctx, r, s)

	return errors.Join(err, b.Close())
}

// chargeOrder adds a row to a table without a unique constraint: a second run for the same event is a second charge.
func (s *setting) chargeOrder(msg *message.Message) ([]*message.Message, error) {
	var order orderPlaced
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, fmt.Errorf("decoding an order: %w", err)
	}

	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return nil, errors.New("no inbox in front of this handler")
	}

	_, err := tx.ExecContext(msg.Context(), s.query(`INSERT INTO {schema}.charges (order_id, customer, cents) VALUES ($1, $2, $3)`),
		order.OrderID, order.Customer, order.AmountCents)
	if err != nil {
		return nil, err
	}

	invoice := message.NewMessage(watermill.NewUUID(), msg.Payload)
	invoice.Metadata.Set("event_source", "billing")
	invoice.Metadata.Set("event_type", "invoice_issued")

	return []*message.Message{invoice}, nil
}

// noPublisher is what the router has to publish with: the inbox leaves it nothing to publish.
type noPublisher struct{}

func (noPublisher) Publish(string, ...*message.Message) error {
	return errors.New("a message went around the outbox")
}

func (noPublisher) Close() error { return nil }

// recordDeliveries notes what was handled, duplicates too, outside of the inbox and its transactions.
func (s *setting) recordDeliveries(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outputs, err := h(msg)
		if err != nil {
			return nil, err
		}

		return outputs, s.recordDelivery(context.WithoutCancel(msg.Context()), s.db, msg.UUID)
	}
}

func (s *setting) recordDelivery(ctx context.Context, db *sql.DB, id string) error {
	_, err := db.ExecContext(ctx, s.query(`INSERT INTO {schema}.deliveries (event_id) VALUES ($1)`), id)

	return err
}
