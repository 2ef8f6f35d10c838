package stored_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestDuplicates(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "of one batch are all acked and handed out once", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithIngest(5))
		sent := deliveries("e1", "e1", "e2", "e1", "first")

		sendTogether(t, db, p, sent...)
		requireAcked(t, sent...)
		p.store(t, "last")

		var got []string

		for got == nil || got[len(got)-1] != "last" {
			msg := p.next(t)
			got = append(got, msg.UUID)
			msg.Ack()
		}

		require.Equal(t, "number handed out", len(got), 4)
		requireRecorded(t, db, 4)
	})

	forEachEngine(t, "of an event that is being handled, is dead, or is done are acked and change nothing", func(t *testing.T, db *testdb.DB) {
		var duplicates atomic.Int32

		p := start(t, db.New(t, inbox.WithHooks(inbox.Hooks{
			Duplicate: func(context.Context, inbox.Event) { duplicates.Add(1) },
		})), inbox.WithLease(time.Hour), inbox.WithMaxAttempts(1))
		requireUnchanged := func(state string) {
			t.Helper()

			before, _ := find(t, db, "e1")
			seen := duplicates.Load()

			p.store(t, "e1", "e1")
			require.Eventually(t, "duplicates are reported", func() bool { return duplicates.Load() == seen+2 })

			after, _ := find(t, db, "e1")
			require.Equal(t, "row of an event that is "+state, after, before)
		}

		p.store(t, "e1")
		msg := p.next(t)
		requireUnchanged("being handled")

		msg.Nack()
		awaitRow(t, db, "e1", "e1 is dead", func(r row) bool { return r.dead })
		requireUnchanged("dead")

		dead, err := p.Dead(t.Context(), 1)
		require.OK(t, err)
		_, err = p.Requeue(t.Context(), dead[0].Key)
		require.OK(t, err)
		p.requireHandedOut(t, "e1")
		awaitFinished(t, db, "e1")
		requireUnchanged("done")

		p.store(t, "e2")
		p.requireHandedOut(t, "e2")
		requireRecorded(t, db, 2)
	})

	// SQLite has one writer, for which everybody waits.
	testdb.ForEach(t, []testdb.Engine{testdb.PQ, testdb.PGX}, "of an event in whose transaction a handler is at work do not wait for it", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithIngest(2))
		p.store(t, "e1")

		msg := p.next(t)
		require.OK(t, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			p.store(t, "e1", "e2")

			return insertEffect(db, tx, "e1")
		}))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "that another process received are acked and handed out by nobody", func(t *testing.T, db *testdb.DB) {
		p1 := start(t, db.New(t))
		p1.store(t, "e1")
		p1.requireHandedOut(t, "e1")
		awaitFinished(t, db, "e1")

		p2 := start(t, another(t, db).New(t))
		p2.store(t, "e1", "e1")
		require.Equal(t, "finished", isFinished(t, db, "e1"), true)
		p2.store(t, "e2")
		requireRecorded(t, db, 2)
	})

	forEachEngine(t, "that processes receive at the same time have one effect", func(t *testing.T, db *testdb.DB) {
		ids := numbered("e", 40)

		var sending, handlers sync.WaitGroup

		t.Cleanup(handlers.Wait) // which comes after the processes are closed

		for range 2 {
			p := start(t, another(t, db).New(t), inbox.WithIngest(4), inbox.WithConcurrency(4))

			sending.Go(func() {
				sent := deliveries(ids...)
				p.broker.send(t, orders, sent...)
				requireAcked(t, sent...)
			})

			handlers.Go(func() {
				for msg := range p.messages {
					if err := write(db, msg, nil); err != nil {
						t.Errorf("%s: %v", msg.UUID, err)
					}

					msg.Ack()
				}
			})
		}

		sending.Wait()
		awaitFinished(t, db, ids...)
		db.RequireOnce(t, ids...)
		requireRecorded(t, db, len(ids))
	})

	forEachEngine(t, "across the modes are recognised in both directions", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t, inbox.WithConsumer(func(*message.Message) string { return billing }),
			inbox.WithSource(func(*message.Message) string { return "shop" }))
		p := start(t, ib)
		handle := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, write(db, msg, nil) })

		_, err := handle(delivery("e1")) // same-transaction
		require.OK(t, err)
		p.store(t, "e1", "e2")

		msg := p.next(t)
		require.Equal(t, "message handed out", msg.UUID, "e2")
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e2")

		_, err = handle(delivery("e2"))
		require.OK(t, err)
		db.RequireOnce(t, "e1", "e2")
	})
}
