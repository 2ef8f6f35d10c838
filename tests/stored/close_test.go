package stored_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// startClosing returns when the broker is closed, and what Close will have returned.
func (p *process) startClosing(t testing.TB) (closed <-chan error) {
	t.Helper()

	done := make(chan error, 1)

	go func() { done <- p.subscriber.Close() }()

	require.Await(t, "the broker to be closed", p.broker.closed)

	return done
}

func TestClose(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "gives back what no handler has taken, uncounted and due at once", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithConcurrency(3))
		ids := numbered("e", 5)
		p.store(t, ids...)
		require.Eventually(t, "three are leased", func() bool { return leasedNow(t, db) == 3 })
		p.close(t)

		for _, id := range ids {
			r := stored(t, db, id)
			require.Equal(t, "owner of "+id, r.owner, "")
			require.Equal(t, "attempts at "+id, r.attempts, 0)

			if wait := time.Until(r.due); wait > 2*time.Millisecond {
				t.Errorf("%s is due in %s", id, wait)
			}
		}
	})

	// watermill 568, 669
	forEachEngine(t, "waits for handlers, does not disturb them, and returns when their completion is in the table", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryNever)
		p.store(t, "acked", "inTx", "nacked")

		inHand := make(map[string]*message.Message)

		for range 3 {
			msg := p.next(t)
			inHand[msg.UUID] = msg
		}

		closed := p.startClosing(t)
		require.OK(t, write(db, inHand["inTx"], nil))

		for _, msg := range inHand {
			require.OK(t, msg.Context().Err())
		}

		inHand["acked"].Ack()
		inHand["inTx"].Ack()

		if isClosed(closed) {
			t.Error("closed before the last handler has finished")
		}

		inHand["nacked"].Nack()
		require.OK(t, require.Await(t, "the subscriber to close", closed))

		require.Equal(t, "acked is finished", isFinished(t, db, "acked"), true)
		require.Equal(t, "inTx is finished", isFinished(t, db, "inTx"), true)

		r := stored(t, db, "nacked")
		require.Equal(t, "attempts", r.attempts, 1)
		require.Equal(t, "owner", r.owner, "")
		db.RequireOnce(t, "inTx")
	})

	forEachEngine(t, "keeps the leases of handlers that it waits for", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), safeLease)
		p.store(t, "e1")

		msg := p.next(t)
		closed := p.startClosing(t)
		r := stored(t, db, "e1")

		for range 4 {
			before := r.due
			r = awaitRow(t, db, "e1", "the lease is renewed", func(r row) bool { return r.due.After(before) })
		}

		require.OK(t, write(db, msg, nil))
		msg.Ack()
		require.OK(t, require.Await(t, "the subscriber to close", closed))
		require.Equal(t, "finished", isFinished(t, db, "e1"), true)
	})

	forEachEngine(t, "stores what the broker delivered before it, and loses nothing that it did not", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithIngest(4))
		awaitHeld, release := holdStores(t, db)

		sent := deliveries(numbered("e", 4)...)
		p.broker.send(t, orders, sent[0])
		awaitHeld()
		p.broker.send(t, orders, sent[1:]...)

		closed := p.startClosing(t)
		release()
		require.OK(t, require.Await(t, "the subscriber to close", closed))

		for _, msg := range sent {
			_, ok := find(t, db, msg.UUID)
			require.Equal(t, msg.UUID+" is stored", ok, isClosed(msg.Acked()))
		}
	})

	forEachEngine(t, "ends the messages, and nothing can be subscribed after it", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		require.OK(t, closeAsync(t, p.subscriber))

		if msg := require.Await(t, "the end of the messages", p.messages); msg != nil {
			t.Errorf("got message %q", msg.UUID)
		}

		_, err := p.subscriber.Subscribe(t.Context(), orders)
		require.ErrorNames(t, err, "closed")
		require.OK(t, closeAsync(t, p.subscriber)) // which closes the broker once
	})

	forEachEngine(t, "of a subscriber without subscriptions returns", func(t *testing.T, db *testdb.DB) {
		b := newBroker()
		sub, err := db.New(t).Subscriber(billing, b)
		require.OK(t, err)
		require.OK(t, closeAsync(t, sub))
		require.Equal(t, "broker is closed", isClosed(b.closed), true)
	})

	forEachEngine(t, "comes with the end of Subscribe's context for that subscription alone", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		ctx, cancel := context.WithCancel(context.Background())
		refunds, err := p.subscriber.Subscribe(ctx, "refunds")
		require.OK(t, err)

		sent := delivery("e1")
		p.broker.send(t, "refunds", sent)
		requireAcked(t, sent)

		msg := nextOf(t, refunds)
		cancel()
		require.OK(t, msg.Context().Err())
		require.OK(t, write(db, msg, nil))
		msg.Ack()

		if msg := require.Await(t, "the end of the messages", refunds); msg != nil {
			t.Errorf("got message %q", msg.UUID)
		}

		require.Equal(t, "finished", isFinished(t, db, "e1"), true)
		p.store(t, "e2")
		p.requireHandedOut(t, "e2")
	})

	// watermill 568, 669
	forEachEngine(t, "cancels handlers that take too long, and what they then nack is no attempt", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithMaxAttempts(1))
		p.store(t, "e1")

		msg := p.next(t)
		closed := p.startClosing(t)
		require.Await(t, "the end of the message's context", msg.Context().Done())
		msg.Nack()
		require.OK(t, require.Await(t, "the subscriber to close", closed))

		r := stored(t, db, "e1")
		require.Equal(t, "attempts", r.attempts, 0)
		require.Equal(t, "dead", r.dead, false)

		heir := startBacklog(t, another(t, db).New(t), inbox.WithMaxAttempts(1))
		heir.requireHandedOut(t, "e1")
	})

	forSQLite(t, "does not wait for ever for a broker that never ends its messages, and stores what that still delivers", func(
		t *testing.T, db *testdb.DB,
	) {
		b := endless{make(chan *message.Message)}
		sub, err := db.New(t).Subscriber(billing, b)
		require.OK(t, err)

		messages := subscribe(t, sub, orders)
		sent := delivery("e1")
		b.messages <- sent

		requireAcked(t, sent)
		nextOf(t, messages).Ack()
		awaitFinished(t, db, "e1")

		closed := make(chan error, 1)

		go func() { closed <- sub.Close() }()

		late := delivery("e2")
		b.messages <- late

		requireAcked(t, late)

		select {
		case err := <-closed:
			require.OK(t, err)
		case <-time.After(2 * require.Patience): // half of it is as it should be
			t.Fatal("the subscriber does not close")
		}

		stored(t, db, "e2")
	})
}

// endless is a broker's subscriber that ignores its end.
type endless struct{ messages chan *message.Message }

func (b endless) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return b.messages, nil
}

func (endless) Close() error { return nil }
