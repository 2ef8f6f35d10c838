package datalayers

import (
	"example.com/datalayers/billing"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// ChargeWithSqlc makes the generated queries on the transaction. A *Queries that a service made once on its pool
// has WithTx for the same.
func ChargeWithSqlc(msg *message.Message) error {
	o, err := decode(msg)
	if err != nil {
		return err
	}

	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errNoInbox
	}

	return billing.New(tx).CreateCharge(msg.Context(), billing.CreateChargeParams{OrderID: o.OrderID, Cents: o.AmountCents})
}
