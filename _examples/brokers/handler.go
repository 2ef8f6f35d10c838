package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// orderPlaced is the event. Which broker brings it makes no difference to anything in this file.
type orderPlaced struct {
	Run         string `json:"run"`
	OrderID     string `json:"order_id"`
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

// chargeCustomer adds a row to a table without a unique constraint: a second run for the same event is a second charge.
func chargeCustomer(msg *message.Message) error {
	var order orderPlaced
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return fmt.Errorf("decoding an order: %w", err)
	}

	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errors.New("no inbox in front of this handler")
	}

	_, err := tx.ExecContext(msg.Context(), `INSERT INTO brokers_example.charges (run, order_id, customer, cents)
		VALUES ($1, $2, $3, $4)`, order.Run, order.OrderID, order.Customer, order.AmountCents)

	return err
}
