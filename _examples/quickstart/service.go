package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

const (
	ordersTopic   = "orders"
	receiptsTopic = "receipts"
)

// service is the program that a shop would run: a router with two handlers, and a database.
type service struct {
	db     *sql.DB
	router *message.Router
	ended  chan error
}

// startService returns when the router is running.
func startService(ctx context.Context, file string, withInbox bool, b *broker, n *counters) (*service, error) {
	db, err := openDatabase(ctx, file)
	if err != nil {
		return nil, err
	}

	router, err := newRouter(ctx, db, withInbox, b, n)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}

	s := &service{db: db, router: router, ended: make(chan error, 1)}
	go func() { s.ended <- router.Run(context.WithoutCancel(ctx)) }()

	select {
	case <-router.Running():
		return s, nil
	case err := <-s.ended:
		return nil, errors.Join(err, db.Close())
	}
}

func newRouter(ctx context.Context, db *sql.DB, withInbox bool, b *broker, n *counters) (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}

	router.AddSubscriberDecorators(message.MessageTransformSubscriberDecorator(b.handedOut))

	charge := router.AddHandler("charge_customer", ordersTopic, b, receiptsTopic, brokenPublisher{b, n}, chargeCustomer)
	charge.AddMiddleware(n.countDeliveries)

	if withInbox {
		ib, err := inbox.New(db, inbox.SQLite, inbox.WithHooks(inbox.Hooks{
			Duplicate: func(context.Context, inbox.Event) { n.skipped.Add(1) },
		}))
		if err != nil {
			return nil, err
		}

		if err := ib.Migrate(ctx); err != nil {
			return nil, err
		}

		charge.AddMiddleware(ib.Middleware) // this line is the difference
	} else {
		charge.AddMiddleware(plainTx(db))
	}

	charge.AddMiddleware(breakHandlers(n))

	// Another service, perhaps. It keeps receipts by their UUID, so it needs no inbox.
	router.AddConsumerHandler("record_receipt", receiptsTopic, b, func(msg *message.Message) error {
		var r receipt
		if err := json.Unmarshal(msg.Payload, &r); err != nil {
			return fmt.Errorf("decoding a receipt: %w", err)
		}

		_, err := db.ExecContext(msg.Context(), `INSERT INTO receipts (uuid, source, event_id) VALUES (?, ?, ?)
			ON CONFLICT (uuid) DO NOTHING`, msg.UUID, r.Source, r.EventID)

		return err
	})

	return router, nil
}

// stop lets running handlers finish. Watermill cancels their contexts at once, so some of them fail; and Router.Close
// does not wait for a handler that has only just got its message, so some find the database closed. Both come again.
func (s *service) stop() error {
	return errors.Join(s.router.Close(), <-s.ended, s.db.Close())
}
