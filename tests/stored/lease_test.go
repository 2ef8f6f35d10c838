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

// requireLost fails unless the message's context ends because its lease was lost.
func requireLost(t testing.TB, msg *message.Message) {
	t.Helper()
	require.Await(t, "the end of the message's context", msg.Context().Done())
	require.ErrorIs(t, context.Cause(msg.Context()), inbox.ErrLeaseLost)
}

func TestLease(t *testing.T) {
	t.Parallel()

	// Wolverine 587
	forEachEngine(t, "is renewed while a handler runs, for longer than it lasts", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), safeLease)
		p.store(t, "e1")

		msg := p.next(t)
		startBacklog(t, another(t, db).New(t)) // would take it

		first := stored(t, db, "e1")
		r := first

		for range 7 { // renewals, one in each third of a lease
			before := r.due
			r = awaitRow(t, db, "e1", "the lease is renewed", func(r row) bool { return r.due.After(before) })
		}

		first.due = r.due
		require.Equal(t, "row", r, first)
		require.OK(t, msg.Context().Err())
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "is renewed neither after the ack nor after the nack", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), safeLease, retryNever)
		p.store(t, "e1", "e2")

		done, failed := p.next(t), p.next(t)
		done.Ack()
		failed.Nack()
		awaitFinished(t, db, "e1")

		due := awaitRelease(t, db, "e2").due
		p.store(t, "e3")
		p.next(t)

		first := stored(t, db, "e3").due
		awaitRow(t, db, "e3", "a lease is renewed", func(r row) bool { return r.due.After(first) })
		require.Equal(t, "next attempt", stored(t, db, "e2").due, due)
		require.Equal(t, "finished", isFinished(t, db, "e1"), true)
	})

	forEachEngine(t, "that no handler took is not renewed, and the message goes to another process uncounted", func(t *testing.T, db *testdb.DB) {
		p1 := start(t, db.New(t), shortLease, inbox.WithConcurrency(3)) // which nobody reads
		p1.store(t, "e1", "e2")

		p2 := startBacklog(t, another(t, db).New(t))

		for range 2 {
			msg := p2.next(t)
			require.Equal(t, "attempts", stored(t, db, msg.UUID).attempts, 1)
			msg.Ack()
		}

		awaitFinished(t, db, "e1", "e2")
	})

	forEachEngine(t, "that no handler takes again and again counts no attempts", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithLease(time.Second), inbox.WithMaxAttempts(1))
		p.store(t, "e1")

		ends := make(map[int64]time.Time) // of leases by their numbers

		require.Eventually(t, "e1 is leased three times", func() bool {
			r := stored(t, db, "e1")
			if r.owner == "" {
				return false
			}

			if end, known := ends[r.lease]; known && !end.Equal(r.due) {
				t.Errorf("a lease until %s is renewed until %s", end, r.due)
			}

			ends[r.lease] = r.due
			require.Equal(t, "attempts", r.attempts, 1)

			return len(ends) == 3
		})
		p.requireHandedOut(t, "e1")
		awaitFinished(t, db, "e1")
	})

	forEachEngine(t, "that another has fences off the worker: context, InTx, ack and nack", func(t *testing.T, db *testdb.DB) {
		for id, answer := range map[string]func(*message.Message) bool{
			"acked": (*message.Message).Ack, "nacked": (*message.Message).Nack,
		} {
			p := start(t, another(t, db).New(t), shortLease, retryNever)
			p.store(t, id)

			msg := p.next(t)
			steal(t, db, id, time.Hour)

			stolen := stored(t, db, id)
			requireLost(t, msg)
			require.ErrorIs(t, write(db, msg, nil), inbox.ErrLeaseLost)
			answer(msg)
			p.close(t) // returns when the answer has had its effect, if it has one

			require.Equal(t, "row of "+id, stored(t, db, id), stolen)
			require.Equal(t, "processed", isProcessed(t, db, id), false)
		}

		db.RequireOnce(t)
	})

	forEachEngine(t, "that another has makes the middleware return an error without running the handler", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)
		p := start(t, ib)
		p.store(t, "e1")

		msg := p.next(t)
		steal(t, db, "e1", time.Hour)

		_, err := ib.Middleware(func(*message.Message) ([]*message.Message, error) {
			t.Error("the handler runs")

			return nil, nil
		})(msg)
		require.ErrorIs(t, err, inbox.ErrLeaseLost)
		require.Equal(t, "processed", isProcessed(t, db, "e1"), false)
	})

	// NServiceBus 5648, CAP 1144, watermill-kafka 30
	forEachEngine(t, "of a worker whose renewals fail ends, and only the worker that has it then has an effect", func(t *testing.T, db *testdb.DB) {
		slow := start(t, db.New(t), shortLease)
		slow.store(t, "e1")

		msg := slow.next(t)
		repair := refuseUpdates(t, db, "NEW.owner = OLD.owner AND NEW.due_at <> OLD.due_at")

		requireLost(t, msg)

		fast := startBacklog(t, another(t, db).New(t))
		again := fast.next(t)

		require.Equal(t, "message", again.UUID, "e1")
		require.ErrorIs(t, write(db, msg, nil), inbox.ErrLeaseLost)
		require.OK(t, write(db, again, nil))
		msg.Nack()
		again.Ack()
		awaitFinished(t, db, "e1")
		repair()
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "of a process that died ends, and another process gets the message with the attempt counted", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")
		p.next(t)
		steal(t, db, "e1", time.Hour) // by a process that dies
		p.close(t)
		setDue(t, db, "e1", -time.Second)

		heir := startBacklog(t, another(t, db).New(t))
		msg := heir.next(t)
		require.Equal(t, "attempts", stored(t, db, "e1").attempts, 3)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "that ends in the course of the middleware's transaction cannot be taken by another", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)
		p := start(t, ib, inbox.WithLease(time.Second))
		p.store(t, "e1")

		msg, outside := p.next(t), another(t, db)

		if db.Engine.Dialect != inbox.SQLite { // which has one writer, for which the other would wait
			startBacklog(t, another(t, db).New(t))
		}

		_, err := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			if err := write(db, msg, nil); err != nil {
				return nil, err
			}

			awaitRow(t, outside, "e1", "the lease has ended", func(r row) bool { return time.Since(r.due) > 100*time.Millisecond })

			return nil, context.Cause(msg.Context())
		})(msg)
		require.OK(t, err)
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})
}
