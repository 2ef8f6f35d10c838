package main

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// chargeCustomer handles an order event: it charges the customer and returns a receipt for the router to publish.
//
// Nothing in it knows about duplicates. The table has no unique constraint, so a second run for the same event is a
// second charge. What keeps that from happening is the transaction: the inbox has written the event's id through it
// already, and commits both or neither.
func chargeCustomer(msg *message.Message) ([]*message.Message, error) {
	var order orderEvent
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, fmt.Errorf("decoding an order: %w", err)
	}

	tx, err := txFrom(msg.Context()) // inbox.TxFromContext, when the inbox is on
	if err != nil {
		return nil, err
	}

	_, err = tx.ExecContext(msg.Context(), `INSERT INTO charges (source, event_id, customer, cents) VALUES (?, ?, ?, ?)`,
		order.Source, order.ID, order.Customer, order.AmountCents)
	if err != nil {
		return nil, fmt.Errorf("charging %s: %w", order.Customer, err)
	}

	payload, err := json.Marshal(receipt{Source: order.Source, EventID: order.ID})
	if err != nil {
		return nil, err
	}

	return []*message.Message{message.NewMessage(watermill.NewUUID(), payload)}, nil
}

// receipt is the output of chargeCustomer.
type receipt struct {
	Source  string `json:"source"`
	EventID string `json:"event_id"`
}
