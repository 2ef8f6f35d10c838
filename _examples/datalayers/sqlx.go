package datalayers

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// ChargeWithSqlx gets the same transaction with sqlx around it. Named parameters get the placeholders of the inbox's
// dialect.
func ChargeWithSqlx(msg *message.Message) error {
	o, err := decode(msg)
	if err != nil {
		return err
	}

	tx, ok := inbox.SqlxTxFromContext(msg.Context())
	if !ok {
		return errNoInbox
	}

	_, err = tx.NamedExecContext(msg.Context(), `INSERT INTO charges (order_id, cents) VALUES (:order_id, :cents)`,
		map[string]any{"order_id": o.OrderID, "cents": o.AmountCents})

	return err
}
