package main

import (
	"context"
	"database/sql"
	"math"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

const (
	inboxTable = "bench_inbox.inbox"
	consumer   = "billing"
	topic      = "orders"

	// inboxConcurrency is the counterpart of riverWorkers.
	inboxConcurrency = 1000
	prefillFlight    = 256
)

// store is an inbox in the mode store-then-process.
type store struct{ inbox *inbox.Inbox }

func newStore(ctx context.Context, db *sql.DB) (store, error) {
	ib, err := inbox.New(db, inbox.Postgres, inbox.WithTable(inboxTable))
	if err != nil {
		return store{}, err
	}

	return store{ib}, ib.Migrate(ctx)
}

// intake subscribes to a broker through the inbox and reads nothing of what that hands out.
func (s store) intake(ctx context.Context, b *broker, opts ...inbox.SubscriberOption) (stop func() error, err error) {
	sub, err := s.inbox.Subscriber(consumer, b, opts...)
	if err != nil {
		return nil, err
	}

	if _, err := sub.Subscribe(ctx, topic); err != nil {
		return nil, firstOf(err, sub.Close())
	}

	return sub.Close, nil
}

// fill measures how fast messages are stored and acked, so many subscriptions with so many in flight each.
func (s store) fill(subscriptions, flight int, duration time.Duration) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		b := newBroker(flight, math.MaxInt64)

		stop, err := s.intake(ctx, b, inbox.WithIngest(subscriptions))
		if err != nil {
			return err
		}

		return firstOf(b.countAcks(ctx, m, duration), stop())
	}
}

// prefill stores a backlog.
func (s store) prefill(ctx context.Context, events int) error {
	b := newBroker(1, int64(events))

	stop, err := s.intake(ctx, b, inbox.WithIngest(prefillFlight))
	if err != nil {
		return err
	}

	return firstOf(b.await(ctx, b.drained), stop())
}

// consume hands what it is given to handle until it is told to stop.
type consume func(ctx context.Context, sub message.Subscriber, handle func()) (stop func() error, err error)

// work is stored-to-done: it stores events, and then measures how long a fresh subscriber with a handler that does nothing
// takes until the last of them is recorded as processed.
func (s store) work(events int, consume consume) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		if err := s.prefill(ctx, events); err != nil {
			return err
		}

		sub, err := s.inbox.Subscriber(consumer, newBroker(1, 0), inbox.WithConcurrency(inboxConcurrency))
		if err != nil {
			return err
		}

		var (
			handled atomic.Int64
			done    = make(chan struct{})
		)

		if err := m.start(ctx); err != nil {
			return err
		}

		stop, err := consume(ctx, sub, func() {
			if handled.Add(1) == int64(events) {
				close(done)
			}
		})
		if err != nil {
			return err
		}

		select {
		case <-done:
			err = awaitNone(ctx, m, `SELECT FROM `+inboxTable+` WHERE processed_at IS NULL`)
		case <-ctx.Done():
			err = ctx.Err()
		}

		if err == nil {
			err = m.stop(ctx, int64(events))
		}

		return firstOf(err, stop())
	}
}

// read acks what comes out of the subscriber, with nothing between.
func read(ctx context.Context, sub message.Subscriber, handle func()) (func() error, error) {
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}

	go func() {
		for msg := range messages {
			handle()
			msg.Ack()
		}
	}()

	return sub.Close, nil
}

// route is how users consume: through Watermill's router.
func route(ctx context.Context, sub message.Subscriber, handle func()) (func() error, error) {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}

	router.AddConsumerHandler(consumer, topic, sub, func(*message.Message) error {
		handle()

		return nil
	})

	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()

	return func() error { return firstOf(router.Close(), <-ended) }, nil
}
