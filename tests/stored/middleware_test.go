package stored_test

import (
	"context"
	"database/sql"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// service is a router whose one handler gets stored messages and publishes invoices.
type service struct {
	broker   *broker
	invoices func() []*message.Message // published so far
	runs     atomic.Int32              // of the handler
}

// serve runs a service until the test ends. The first failures to publish are errBroken.
func serve(t testing.TB, ib *inbox.Inbox, h func(run int, msg *message.Message) ([]*message.Message, error), failures int, opts ...inbox.SubscriberOption) *service {
	t.Helper()

	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	t.Cleanup(func() { require.OK(t, pubsub.Close()) })

	s := &service{broker: newBroker(), invoices: running.Collect(t, pubsub, "invoices")}
	sub, err := ib.Subscriber(billing, s.broker, opts...)
	require.OK(t, err)

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
	require.OK(t, err)
	router.AddMiddleware(ib.Middleware)

	publisher := &flaky{Publisher: pubsub}
	publisher.failures.Store(int32(failures))

	router.AddHandler("bills", orders, sub, "invoices", publisher, func(msg *message.Message) ([]*message.Message, error) {
		return h(int(s.runs.Add(1)), msg)
	})
	running.Run(t, router)

	return s
}

func (s *service) store(t testing.TB, ids ...string) {
	t.Helper()

	for _, msg := range deliveries(ids...) {
		s.broker.send(t, orders, msg)
		requireAcked(t, msg)
	}
}

func (s *service) requireRuns(t testing.TB, want int) {
	t.Helper()
	require.Equal(t, "runs of the handler", int(s.runs.Load()), want)
}

// flaky is a publisher that fails a number of times before it publishes for real.
type flaky struct {
	message.Publisher
	failures, calls atomic.Int32
}

func (f *flaky) Publish(topic string, messages ...*message.Message) error {
	f.calls.Add(1)

	if f.failures.Add(-1) >= 0 {
		return errBroken
	}

	return f.Publisher.Publish(topic, messages...)
}

// invoicing writes an effect and returns two messages with new UUIDs.
func invoicing(db *testdb.DB) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := inbox.TxFromContext(msg.Context())
		if !ok {
			return nil, errBroken
		}

		one, two := message.NewMessage(watermill.NewUUID(), []byte("1")), message.NewMessage(watermill.NewUUID(), []byte("2"))
		one.Metadata.Set("odd\x00", "\xff")

		return message.Messages{one, two}, insertEffect(db, tx, msg.UUID)
	}
}

func uuids(messages []*message.Message) (ids []string) {
	for _, msg := range messages {
		ids = append(ids, msg.UUID)
	}

	return ids
}

func TestMiddleware(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "completes a stored message with the handler's writes", func(t *testing.T, db *testdb.DB) {
		s := serve(t, db.New(t), func(_ int, msg *message.Message) ([]*message.Message, error) {
			return nil, write(db, msg, nil)
		}, 0)

		s.store(t, "e1", "e1")
		awaitFinished(t, db, "e1")
		s.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "finishes what a handler acks by hand, with its writes or without", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		s := serve(t, db.New(t, inbox.WithLogger(logger)), func(_ int, msg *message.Message) ([]*message.Message, error) {
			if err := write(db, msg, nil); err != nil {
				return nil, err
			}

			msg.Ack()

			if msg.UUID == "failed" {
				return nil, errBroken
			}

			return nil, nil
		}, 0)

		s.store(t, "acked", "failed")
		awaitFinished(t, db, "acked", "failed")
		s.requireRuns(t, 2)
		db.RequireOnce(t, "acked")
		requireLogged(t, logger, "event lost", "failed", errBroken.Error())
	})

	testdb.ForEach(t, []testdb.Engine{testdb.PQ, testdb.PGX}, "holds nobody up while a handler goes on after it has acked by hand", func(
		t *testing.T, db *testdb.DB,
	) {
		s := serve(t, db.New(t), func(_ int, msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "acked" {
				msg.Ack()
				awaitFinished(t, db, "other")
			}

			return nil, write(db, msg, nil)
		}, 0)

		s.store(t, "acked", "other")
		awaitFinished(t, db, "acked", "other")
		db.RequireOnce(t, "acked", "other")
	})

	forEachEngine(t, "undoes the handler's writes after an error and a panic, and the next attempt runs", func(t *testing.T, db *testdb.DB) {
		s := serve(t, db.New(t), func(run int, msg *message.Message) ([]*message.Message, error) {
			if err := write(db, msg, nil); err != nil {
				return nil, err
			}

			switch run {
			case 1:
				return nil, errBroken
			case 2:
				panic("oops")
			default:
				return nil, nil
			}
		}, 0, retryAtOnce)

		s.store(t, "e1")
		awaitFinished(t, db, "e1")
		s.requireRuns(t, 3)
		db.RequireOnce(t, "e1")
	})

	// MassTransit 3791, 4990
	forEachEngine(t, "whose outputs cannot be published publishes the same ones later and does not run the handler again", func(t *testing.T, db *testdb.DB) {
		s := serve(t, db.New(t), func(_ int, msg *message.Message) ([]*message.Message, error) {
			return invoicing(db)(msg)
		}, 3, retryAtOnce, inbox.WithMaxAttempts(2)) // which publishing does not use up

		s.store(t, "e1")
		awaitFinished(t, db, "e1")
		s.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
		require.Eventually(t, "both outputs are published", func() bool { return len(s.invoices()) == 2 })

		for _, msg := range s.invoices() {
			if string(msg.Payload) == "1" {
				require.Equal(t, "metadata", maps.Clone(msg.Metadata), message.Metadata{"odd\x00": "\xff"})
			}
		}

		require.Equal(t, "stored outputs", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_outputs")), 0)
	})

	forEachEngine(t, "of a process that died between commit and publishing leaves the outputs to another", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)
		p := start(t, ib)
		p.store(t, "e1")

		outputs, err := ib.Middleware(invoicing(db))(p.next(t))
		require.OK(t, err)
		require.Equal(t, "outputs", len(outputs), 2)
		steal(t, db, "e1", time.Hour) // in place of dying
		p.close(t)
		setDue(t, db, "e1", -time.Second)

		s := serve(t, another(t, db).New(t), func(int, *message.Message) ([]*message.Message, error) { return nil, errBroken }, 1, retryAtOnce)
		awaitFinished(t, db, "e1")
		s.requireRuns(t, 0)
		db.RequireOnce(t, "e1")
		require.Eventually(t, "both outputs are published", func() bool { return len(s.invoices()) == 2 })

		published, want := make(map[string]bool), make(map[string]bool)
		for i, id := range uuids(s.invoices()) {
			published[id], want[outputs[i].UUID] = true, true
		}

		require.Equal(t, "published", published, want)
	})

	forEachEngine(t, "with WithOutbox publishes in the transaction", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t, inbox.WithOutbox(func(tx *sql.Tx) (message.Publisher, error) { return outbox{db, tx}, nil }))

		s := serve(t, ib, func(run int, msg *message.Message) ([]*message.Message, error) {
			if run == 1 { // and its effect is undone
				_, err := invoicing(db)(msg)
				require.OK(t, err)

				return nil, errBroken
			}

			return message.Messages{message.NewMessage("o1", nil)}, nil
		}, 0, retryAtOnce)

		s.store(t, "e1")
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "o1 to invoices")
		require.Equal(t, "published by the router", len(s.invoices()), 0)
	})

	forEachEngine(t, "with ErrSkip finishes the message without effect", func(t *testing.T, db *testdb.DB) {
		s := serve(t, db.New(t), func(_ int, msg *message.Message) ([]*message.Message, error) {
			if err := write(db, msg, nil); err != nil {
				return nil, err
			}

			return message.Messages{delivery("o1")}, inbox.ErrSkip
		}, 0)

		s.store(t, "e1")
		awaitFinished(t, db, "e1")
		s.store(t, "e1")
		s.requireRuns(t, 1)
		db.RequireOnce(t)
		require.Equal(t, "published", len(s.invoices()), 0)
	})

	// watermill 568, 669
	forEachEngine(t, "whose router is closed lets the handler finish and record it", func(t *testing.T, db *testdb.DB) {
		ib, b := db.New(t), newBroker()
		sub, err := ib.Subscriber(billing, b)
		require.OK(t, err)

		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
		require.OK(t, err)

		entered, leave := make(chan struct{}), make(chan struct{})

		router.AddConsumerHandler("bills", orders, sub, func(msg *message.Message) error {
			close(entered)
			<-leave

			return write(db, msg, nil)
		})

		go func() { _ = router.Run(context.Background()) }()

		require.Await(t, "the router to run", router.Running())

		sent := delivery("e1")
		b.send(t, orders, sent)
		requireAcked(t, sent)
		require.Await(t, "the handler to run", entered)

		closed := make(chan error, 1)

		go func() { closed <- router.Close() }()

		require.Await(t, "the broker to be closed", b.closed)
		close(leave)
		require.OK(t, require.Await(t, "the router to close", closed))
		require.Eventually(t, "e1 is finished", func() bool { return isFinished(t, db, "e1") })
		db.RequireOnce(t, "e1")
	})
}

// outbox is a publisher that writes through a transaction.
type outbox struct {
	db *testdb.DB
	tx *sql.Tx
}

func (o outbox) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if err := insertEffect(o.db, o.tx, msg.UUID+" to "+topic); err != nil {
			return err
		}
	}

	return nil
}

func (outbox) Close() error { return nil }
