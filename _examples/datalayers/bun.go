package datalayers

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"

	"github.com/watermill-inbox/inbox"
)

type bunCharge struct {
	bun.BaseModel `bun:"table:charges"`

	OrderID string
	Cents   int64
}

// ChargeWithBun returns a handler for the *bun.DB that a service made once. Conn has a query run on the transaction, and
// has to be in each of them.
func ChargeWithBun(db *bun.DB) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		o, err := decode(msg)
		if err != nil {
			return err
		}

		tx, ok := inbox.TxFromContext(msg.Context())
		if !ok {
			return errNoInbox
		}

		_, err = db.NewInsert().Conn(tx).Model(&bunCharge{OrderID: o.OrderID, Cents: o.AmountCents}).Exec(msg.Context())

		return err
	}
}
