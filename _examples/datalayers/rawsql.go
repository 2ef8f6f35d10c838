package datalayers

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// ChargeWithSQL uses the *sql.Tx as it is.
func ChargeWithSQL(msg *message.Message) error {
	o, err := decode(msg)
	if err != nil {
		return err
	}

	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errNoInbox
	}

	_, err = tx.ExecContext(msg.Context(), `INSERT INTO charges (order_id, cents) VALUES (?, ?)`, o.OrderID, o.AmountCents)

	return err
}
