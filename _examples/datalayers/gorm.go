package datalayers

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/watermill-inbox/inbox"
)

type gormCharge struct {
	OrderID string
	Cents   int64
}

// TableName is read by GORM.
func (gormCharge) TableName() string { return "charges" }

// ChargeWithGORM returns a handler for the *gorm.DB that a service made once.
func ChargeWithGORM(db *gorm.DB) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		o, err := decode(msg)
		if err != nil {
			return err
		}

		tx, ok := inbox.TxFromContext(msg.Context())
		if !ok {
			return errNoInbox
		}

		return gormOn(msg.Context(), db, tx).Create(&gormCharge{OrderID: o.OrderID, Cents: o.AmountCents}).Error
	}
}

// gormOn is what GORM's own Begin does, with a transaction that was begun elsewhere. GORM's Transaction inside of it is a
// savepoint.
func gormOn(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	session := db.Session(&gorm.Session{NewDB: true, Context: ctx, SkipDefaultTransaction: true})
	session.Statement.ConnPool = tx

	return session
}
