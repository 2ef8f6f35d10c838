package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
)

type orderPlaced struct {
	OrderID     string `json:"order_id"`
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

// produce places orders and ends.
func produce(ctx context.Context, s *setting) error {
	for i := range s.orders {
		order := orderPlaced{
			OrderID:     fmt.Sprintf("order-%05d", i+1),
			Customer:    fmt.Sprintf("customer-%d", i%7+1),
			AmountCents: int64(990 + 100*(i%13)),
		}

		if err := s.placeOrder(ctx, order); err != nil {
			return fmt.Errorf("placing %s: %w", order.OrderID, err)
		}
	}

	return nil
}

// placeOrder writes the order and its event in one transaction: there is never one without the other.
func (s *setting) placeOrder(ctx context.Context, order orderPlaced) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit

	_, err = tx.ExecContext(ctx, s.query(`INSERT INTO {schema}.orders (order_id, customer, cents) VALUES ($1, $2, $3)`),
		order.OrderID, order.Customer, order.AmountCents)
	if err != nil {
		return err
	}

	outbox, err := s.publisherIn(tx)
	if err != nil {
		return err
	}

	payload, err := json.Marshal(order)
	if err != nil {
		return err
	}

	// This id is made once and stored with the event, so it is the same however often the relay publishes. Being a UUIDv7
	// it keeps the inbox's index small.
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}

	event := message.NewMessage(id.String(), payload)
	event.Metadata.Set("event_source", "shop")
	event.Metadata.Set("event_type", "order_placed")

	if err := forwarder.NewPublisher(outbox, forwarder.PublisherConfig{ForwarderTopic: outboxTopic}).
		Publish(s.ordersTopic(), event); err != nil {
		return err
	}

	return tx.Commit()
}

// publisherIn returns a publisher that writes into tables in the transaction. It is made anew for each.
func (s *setting) publisherIn(tx *sql.Tx) (message.Publisher, error) {
	return watermillsql.NewPublisher(watermillsql.TxFromStdSQL(tx), watermillsql.PublisherConfig{
		SchemaAdapter: s.messageTables(),
	}, s.logger)
}
