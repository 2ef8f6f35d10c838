package stored_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestHandOut(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "is of as many messages at a time as WithConcurrency says, and no more", func(t *testing.T, db *testdb.DB) {
		const concurrency = 3

		p := start(t, db.New(t), inbox.WithConcurrency(concurrency), inbox.WithIngest(10), retryAtOnce)
		ids := numbered("e", 30)

		go func() {
			for _, msg := range deliveries(ids...) {
				p.broker.send(t, orders, msg)
			}
		}()

		var (
			mu       sync.Mutex
			running  int
			handlers sync.WaitGroup
		)

		full := make(chan struct{}) // closed when all that may run do
		handle := func(msg *message.Message, fail bool) {
			mu.Lock()
			running++
			n := running

			if n == concurrency && !isClosed(full) {
				close(full)
			}
			mu.Unlock()

			require.Await(t, "the first handlers", full)

			leased := db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_payloads")+" WHERE owner IS NOT NULL")
			if n > concurrency || leased > concurrency {
				t.Errorf("%d messages are handled and %d are leased", n, leased)
			}

			mu.Lock()
			running--
			mu.Unlock()

			if fail {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}

		failed := make(map[string]bool)

		for range 2 * len(ids) {
			msg := p.next(t)
			fail := !failed[msg.UUID] // each once
			failed[msg.UUID] = true

			handlers.Go(func() { handle(msg, fail) })
		}

		handlers.Wait()
		awaitFinished(t, db, ids...)
	})

	forEachEngine(t, "is from memory when there is room", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		countLeases(t, db)

		ids := numbered("e", 30)
		for _, id := range ids {
			p.store(t, id)
			p.requireHandedOut(t, id)
			awaitFinished(t, db, id)
		}

		// Some may find the subscriber looking through the table, as it does once a second.
		if n := db.Int(t, "SELECT count(*) FROM "+db.Table("leases")); n > len(ids)/2 {
			t.Errorf("%d of %d messages were leased from the table", n, len(ids))
		}
	})

	forEachEngine(t, "is oldest first", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithConcurrency(1))
		p.store(t, "busy")

		busy := p.next(t)
		ids := numbered("e", 20)
		p.store(t, ids...)
		busy.Ack()

		p.requireHandedOut(t, ids...)
	})

	forEachEngine(t, "finds what becomes due in front of a backlog that does not end", func(t *testing.T, db *testdb.DB) {
		const early = "early"

		p := start(t, db.New(t), inbox.WithConcurrency(1))
		p.store(t, append(numbered("e", 20), early)...)
		p.next(t).Ack()
		p.next(t).Ack()
		setDue(t, db, early, -time.Hour)

		for n, deadline := 0, time.Now().Add(require.Patience); ; n++ {
			msg := p.next(t)
			if msg.UUID == early {
				msg.Ack()

				return
			}

			if time.Now().After(deadline) {
				t.Fatalf("%d messages were handed out, and %s was not among them", n, early)
			}

			p.store(t, fmt.Sprintf("more%d", n))
			msg.Ack()
		}
	})

	forEachEngine(t, "goes on in another process with what the first did not hand out, oldest first", func(t *testing.T, db *testdb.DB) {
		ids := numbered("e", 20)
		p1 := start(t, db.New(t), inbox.WithConcurrency(4))
		p1.store(t, ids...)
		p1.close(t)

		p2 := startBacklog(t, another(t, db).New(t), inbox.WithConcurrency(len(ids)))

		for _, id := range ids {
			msg := p2.next(t)
			require.Equal(t, "message", msg.UUID, id)
			require.OK(t, write(db, msg, nil))
			msg.Ack()
		}

		awaitFinished(t, db, ids...)
		db.RequireOnce(t, ids...)
	})

	forEachEngine(t, "is shared by processes that run at the same time", func(t *testing.T, db *testdb.DB) {
		ids := numbered("e", 20)
		p1 := start(t, db.New(t), inbox.WithConcurrency(10))
		p2 := startBacklog(t, another(t, db).New(t), inbox.WithConcurrency(10))
		p1.store(t, ids...)

		for range 10 { // nobody can hold more, so each has half of them
			for _, p := range []*process{p1, p2} {
				require.OK(t, write(db, p.next(t), nil))
			}
		}

		db.RequireOnce(t, ids...)
	})

	forEachEngine(t, "is by topic", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "order1")
		p.close(t) // so that anybody may have it

		ib, b := another(t, db).New(t), newBroker()
		sub, err := ib.Subscriber(billing, b)
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, closeAsync(t, sub)) })

		refunds := subscribe(t, sub, "refunds")

		for _, msg := range deliveries("refund1", "refund2") {
			b.send(t, "refunds", msg)
			requireAcked(t, msg)

			got := nextOf(t, refunds)
			require.Equal(t, "message", got.UUID, msg.UUID)
			got.Ack()
		}

		got := nextOf(t, subscribe(t, sub, orders))
		require.Equal(t, "message", got.UUID, "order1")
		got.Ack()
	})

	// NServiceBus.NHibernate 117, MassTransit 3543
	forEachEngine(t, "is to each consumer of a topic once", func(t *testing.T, db *testdb.DB) {
		ib, consumers := db.New(t), []string{billing, "shipping"}

		for _, consumer := range consumers {
			b := newBroker()
			sub, err := ib.Subscriber(consumer, b)
			require.OK(t, err)
			subscribe(t, sub, orders)

			for range 2 {
				sent := delivery("e1")
				b.send(t, orders, sent)
				requireAcked(t, sent)
			}

			require.OK(t, closeAsync(t, sub)) // so that everybody may have it
		}

		requireRecorded(t, db, 2)

		for _, consumer := range slices.Backward(consumers) {
			sub, err := ib.Backlog(consumer)
			require.OK(t, err)

			msg := nextOf(t, subscribe(t, sub, orders))
			ev, _ := inbox.EventFromContext(msg.Context())
			require.Equal(t, "consumer", ev.Consumer, consumer)
			msg.Ack()
			require.OK(t, closeAsync(t, sub))
			require.Equal(t, "unprocessed events of "+consumer, db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")+
				" WHERE consumer = $1 AND processed_at IS NULL", consumer), 0)
		}

		require.Equal(t, "messages left", unfinished(t, db), 0)
	})

	// spring-modulith 1148
	forEachEngine(t, "of a backlog leases no more than there is room for", func(t *testing.T, db *testdb.DB) {
		p1 := start(t, db.New(t), inbox.WithConcurrency(1), inbox.WithIngest(20))
		sent := deliveries(numbered("e", 300)...)
		p1.broker.send(t, orders, sent...)
		requireAcked(t, sent...)
		p1.close(t)

		p2 := startBacklog(t, another(t, db).New(t), inbox.WithConcurrency(5))
		p2.next(t)
		require.Eventually(t, "five are leased", func() bool { return leasedNow(t, db) == 5 })

		for range 20 {
			p2.next(t).Ack()

			if n := leasedNow(t, db); n > 5 {
				t.Errorf("%d messages are leased", n)
			}
		}
	})
}

func leasedNow(t testing.TB, db *testdb.DB) int {
	t.Helper()

	return db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_payloads")+" WHERE owner IS NOT NULL")
}

// countLeases has the database keep a row in the table leases for each message that is leased after it was stored.
func countLeases(t testing.TB, db *testdb.DB) {
	t.Helper()
	db.Exec(t, "CREATE TABLE "+db.Table("leases")+" (n integer)")

	insert, when := fmt.Sprintf("INSERT INTO %s VALUES (1);", db.Table("leases")), "NEW.lease IS DISTINCT FROM OLD.lease"
	if db.Engine.Dialect == inbox.SQLite {
		db.Exec(t, "CREATE TRIGGER count AFTER UPDATE ON inbox_payloads WHEN "+when+" BEGIN INSERT INTO leases VALUES (1); END")

		return
	}

	createTrigger(t, db, "count", "TRIGGER %s AFTER UPDATE ON "+db.Table("inbox_payloads")+" FOR EACH ROW", "IF "+when+" THEN "+insert+" END IF;")
}
