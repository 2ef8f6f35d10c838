package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

type plainTxKey struct{}

// txFrom returns the transaction to work in: the inbox's, or with -inbox=false that of plainTx.
func txFrom(ctx context.Context) (*sql.Tx, error) {
	if tx, ok := inbox.TxFromContext(ctx); ok {
		return tx, nil
	}

	if tx, ok := ctx.Value(plainTxKey{}).(*sql.Tx); ok {
		return tx, nil
	}

	return nil, errors.New("no transaction: neither the inbox nor plainTx is in front of this handler")
}

// plainTx is what -inbox=false puts in the place of the inbox: a transaction around the handler, committed before the
// ack. It is careful code, and still every copy of an event is handled.
func plainTx(db *sql.DB) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			tx, err := db.BeginTx(msg.Context(), nil)
			if err != nil {
				return nil, err
			}
			defer tx.Rollback() //nolint:errcheck // does nothing after the commit

			msg.SetContext(context.WithValue(msg.Context(), plainTxKey{}, tx))

			outputs, err := h(msg)
			if err != nil {
				return nil, err
			}

			return outputs, tx.Commit()
		}
	}
}
