package stored_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestSettings(t *testing.T) {
	t.Parallel()

	forSQLite(t, "that make no sense are errors that name the option", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)

		for _, bad := range []struct {
			opt   inbox.SubscriberOption
			words []string
		}{
			{inbox.WithConcurrency(0), []string{"WithConcurrency(0)", billing}},
			{inbox.WithConcurrency(-1), []string{"WithConcurrency(-1)"}},
			{inbox.WithConcurrency(10_001), []string{"WithConcurrency(10001)"}},
			{inbox.WithIngest(0), []string{"WithIngest(0)"}},
			{inbox.WithIngest(-1), []string{"WithIngest(-1)"}},
			{inbox.WithIngest(1_001), []string{"WithIngest(1001)"}},
			{inbox.WithLease(0), []string{"WithLease(0s)"}},
			{inbox.WithLease(-time.Second), []string{"WithLease(-1s)"}},
			{inbox.WithLease(99 * time.Millisecond), []string{"WithLease(99ms)", "100ms", "renewing"}},
			{inbox.WithLease(24*time.Hour + time.Second), []string{"WithLease(24h0m1s)", "24h0m0s"}},
			{inbox.WithBackoff(0, time.Second), []string{"WithBackoff(0s, 1s)"}},
			{inbox.WithBackoff(-time.Second, time.Second), []string{"WithBackoff(-1s, 1s)"}},
			{inbox.WithBackoff(2*time.Second, time.Second), []string{"WithBackoff(2s, 1s)"}},
			{inbox.WithBackoff(time.Second, 721*time.Hour), []string{"WithBackoff(1s, 721h0m0s)", "720h0m0s"}},
			{inbox.WithMaxAttempts(0), []string{"WithMaxAttempts(0)"}},
			{inbox.WithMaxAttempts(-1), []string{"WithMaxAttempts(-1)"}},
			{inbox.WithOrderingKey(nil), []string{"WithOrderingKey", "nil"}},
			{nil, []string{"option 2 of 2", "nil"}},
		} {
			opts := []inbox.SubscriberOption{inbox.WithConcurrency(5), bad.opt}

			_, err := ib.Subscriber(billing, newBroker(), opts...)
			require.ErrorNames(t, err, bad.words...)

			_, err = ib.Backlog(billing, opts...)
			require.ErrorNames(t, err, bad.words...)
		}
	})

	forSQLite(t, "at the ends of their ranges are accepted, and the last of two equal options wins", func(t *testing.T, db *testdb.DB) {
		for _, opts := range [][]inbox.SubscriberOption{
			{inbox.WithConcurrency(1), inbox.WithIngest(1), inbox.WithLease(100 * time.Millisecond), inbox.WithMaxAttempts(1)},
			{inbox.WithConcurrency(10_000), inbox.WithIngest(1_000), inbox.WithLease(24 * time.Hour), inbox.WithBackoff(time.Nanosecond, 720*time.Hour)},
			{inbox.WithBackoff(time.Second, time.Second)},
		} {
			sub, err := db.New(t).Subscriber(billing, newBroker(), opts...)
			require.OK(t, err)
			require.OK(t, sub.Close())
		}

		p := start(t, db.New(t), inbox.WithConcurrency(5), inbox.WithConcurrency(2))
		p.store(t, "e1", "e2", "e3")
		p.next(t)
		p.next(t)
		require.Equal(t, "leased", leasedNow(t, db), 2)
	})

	forSQLite(t, "need a consumer that can be stored as it is", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)

		_, err := ib.Subscriber("", newBroker())
		require.ErrorIs(t, err, inbox.ErrNoConsumer)
		_, err = ib.Backlog("")
		require.ErrorIs(t, err, inbox.ErrNoConsumer)

		for _, name := range []string{"a\x00b", "a\nb", "\xff", strings.Repeat("x", 256), "a\u202eb"} {
			_, err := ib.Subscriber(name, newBroker())
			require.ErrorNames(t, err, "consumer", "printable", "255")

			if strings.Contains(err.Error(), name) {
				t.Errorf("error %q has the name as it is", err)
			}
		}

		for _, name := range []string{"billing of café 1", strings.Repeat("x", 255)} {
			sub, err := ib.Subscriber(name, newBroker())
			require.OK(t, err)
			require.OK(t, sub.Close())
		}
	})

	forSQLite(t, "need a subscriber", func(t *testing.T, db *testdb.DB) {
		_, err := db.New(t).Subscriber(billing, nil)
		require.ErrorNames(t, err, "subscriber", billing, "nil")
	})

	forSQLite(t, "of the broker's topic are initialized as without the inbox", func(t *testing.T, db *testdb.DB) {
		b := &initialized{broker: newBroker()}
		sub, err := db.New(t).Subscriber(billing, b)
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, sub.Close()) })

		initializer, ok := sub.(message.SubscribeInitializer)
		require.Equal(t, "can be initialized", ok, true)
		require.OK(t, initializer.SubscribeInitialize(orders))
		require.Equal(t, "topics", b.topics, []string{orders})

		plain, err := db.New(t).Subscriber(billing, newBroker())
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, plain.Close()) })
		require.OK(t, plain.(message.SubscribeInitializer).SubscribeInitialize(orders))
	})

	forSQLite(t, "of all open subscribers of a consumer must be the same", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)
		open := func(opts ...inbox.SubscriberOption) (message.Subscriber, error) {
			return ib.Subscriber(billing, newBroker(), opts...)
		}

		first, err := open(inbox.WithConcurrency(3), byLetters)
		require.OK(t, err)

		same, err := open(byLetters, inbox.WithConcurrency(3), inbox.WithLease(30*time.Second)) // which is the default
		require.OK(t, err)

		for _, opts := range [][]inbox.SubscriberOption{
			nil,
			{inbox.WithConcurrency(3)},
			{inbox.WithConcurrency(4), byLetters},
			{inbox.WithConcurrency(3), byLetters, inbox.WithMaxAttempts(2)},
			{inbox.WithConcurrency(3), inbox.WithOrderingKey(func(*message.Message) string { return "" })},
		} {
			_, err = open(opts...)
			require.ErrorNames(t, err, billing, "other settings")
		}

		elsewhere, err := ib.Subscriber("shipping", newBroker())
		require.OK(t, err)

		require.OK(t, errors.Join(first.Close(), same.Close(), elsewhere.Close()))

		different, err := open()
		require.OK(t, err)
		require.OK(t, different.Close())
	})

	forSQLite(t, "have WithMaxAttempts of the inbox for their default", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t, inbox.WithMaxAttempts(1)))
		p.store(t, "e1")
		p.next(t).Nack()
		awaitRow(t, db, "e1", "e1 is dead", func(r row) bool { return r.dead })
	})

	forEachEngine(t, "without tables have Subscribe return ErrNotMigrated and take nothing from the broker", func(t *testing.T, db *testdb.DB) {
		ib, err := inbox.New(db.DB, db.Engine.Dialect, inbox.WithTable(db.Inbox()))
		require.OK(t, err)

		b := newBroker()
		sub, err := ib.Subscriber(billing, b)
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, closeAsync(t, sub)) })

		_, err = sub.Subscribe(context.Background(), orders)
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
		require.ErrorNames(t, err, billing, orders)

		require.OK(t, ib.Migrate(t.Context()))

		messages := subscribe(t, sub, orders)
		sent := delivery("e1")
		b.send(t, orders, sent)
		requireAcked(t, sent)
		nextOf(t, messages).Ack()
	})
}

// initialized is a broker that has something to initialize.
type initialized struct {
	*broker
	topics []string
}

func (b *initialized) SubscribeInitialize(topic string) error {
	b.topics = append(b.topics, topic)

	return nil
}
