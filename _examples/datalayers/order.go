package datalayers

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

type order struct {
	OrderID     string `json:"order_id"`
	AmountCents int64  `json:"amount_cents"`
}

func decode(msg *message.Message) (o order, err error) {
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return o, fmt.Errorf("decoding an order: %w", err)
	}

	return o, nil
}

// errNoInbox is better than a handler that quietly works without one.
var errNoInbox = errors.New("no inbox in front of this handler")
