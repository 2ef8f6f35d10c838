package datalayers

import (
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// ChargeWithEnt makes an ent driver on the transaction. A generated client takes it as ent.NewClient(ent.Driver(driver));
// here ent's query builder does, which needs no generated code. Do not call the client's Tx: there is one.
func ChargeWithEnt(msg *message.Message) error {
	o, err := decode(msg)
	if err != nil {
		return err
	}

	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errNoInbox
	}

	driver := entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: tx})
	query, args := entsql.Dialect(driver.Dialect()).
		Insert("charges").Columns("order_id", "cents").Values(o.OrderID, o.AmountCents).Query()

	return driver.Exec(msg.Context(), query, args, nil)
}
