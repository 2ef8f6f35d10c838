package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

const runKey = "run"

// withService runs fn while a router handles what the broker brings.
func withService(ctx context.Context, cfg config, db *sql.DB, b *broker, logger watermill.LoggerAdapter, fn func() error) error {
	ib, err := inbox.New(db, inbox.Postgres, inbox.WithTable(inboxTable), inbox.WithLogger(logger))
	if err != nil {
		return err
	}

	if err := ib.Migrate(ctx); err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}

	router.AddMiddleware(recordDeliveries(db, cfg.broker), ib.Middleware)
	router.AddConsumerHandler("charge_customer", cfg.topic(), b.subscriber, chargeCustomer)

	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(ctx)) }()

	select {
	case <-router.Running():
		return errors.Join(fn(), router.Close(), <-ended)
	case err := <-ended:
		return err
	}
}

// ordersOf returns the events of a run. They are the same whenever the run is repeated.
func ordersOf(cfg config) []orderPlaced {
	orders := make([]orderPlaced, cfg.events)
	for i := range orders {
		orders[i] = orderPlaced{
			Run:         cfg.run,
			OrderID:     fmt.Sprintf("order-%05d", i+1),
			Customer:    fmt.Sprintf("customer-%d", i%7+1),
			AmountCents: int64(990 + 100*(i%13)),
		}
	}

	return orders
}

// publishTwice sends two messages for each event, in random order, and returns their UUIDs. The messages are different,
// as from an outbox that published again after a crash: what tells that both are one event is metadata event_id. Without
// event_source the topic would be the source, and the event another one on a broker where topics have other names.
func publishTwice(publisher message.Publisher, topic string, orders []orderPlaced) (messageUUIDs []string, err error) {
	twice := slices.Concat(orders, orders)
	rand.Shuffle(len(twice), func(i, j int) { twice[i], twice[j] = twice[j], twice[i] })

	for _, order := range twice {
		payload, err := json.Marshal(order)
		if err != nil {
			return nil, err
		}

		msg := message.NewMessage(watermill.NewUUID(), payload)
		msg.Metadata.Set("event_id", order.Run+"/"+order.OrderID+"/placed") // not the order's id: an order has several events
		msg.Metadata.Set("event_source", "web-shop")
		msg.Metadata.Set("event_type", "order_placed")
		msg.Metadata.Set(runKey, order.Run)

		if err := publisher.Publish(topic, msg); err != nil {
			return nil, err
		}

		messageUUIDs = append(messageUUIDs, msg.UUID)
	}

	return messageUUIDs, nil
}

// awaitHandled returns when the database says that all messages were handled, or when it gets no further.
func awaitHandled(ctx context.Context, cfg config, db *sql.DB, messageUUIDs []string) error {
	const look = 50 * time.Millisecond

	before, since := 0, time.Now()

	for {
		handled, err := handledOf(ctx, db, cfg.run, messageUUIDs)
		if err != nil {
			return err
		}

		if handled == len(messageUUIDs) {
			return nil
		}

		if handled > before {
			before, since = handled, time.Now()
		}

		if time.Since(since) > cfg.patience {
			return fmt.Errorf("%d of %d messages were handled, and none more for %s", handled, len(messageUUIDs), cfg.patience)
		}

		select {
		case <-time.After(look):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
