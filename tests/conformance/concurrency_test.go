package conformance_test

import (
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// deliverTogether delivers one event from many goroutines at once and returns their errors.
func deliverTogether(n int, ib *inbox.Inbox, h message.HandlerFunc, id string) error {
	var (
		all   sync.WaitGroup
		begin = make(chan struct{})
		errs  = make([]error, n)
	)

	for i := range n {
		all.Go(func() {
			<-begin

			_, errs[i] = deliver(ib, h, delivery(id))
		})
	}

	close(begin)
	all.Wait()

	return errors.Join(errs...)
}

// awaitClaim returns once n claims were sent and none of them was answered.
func awaitClaim(t testing.TB, db *testdb.DB, spy *spy, n int) {
	t.Helper()
	require.Eventually(t, "claims wait", func() bool { return spy.running("INSERT INTO "+db.Table("inbox")) == n })
}

// gate is a handler that waits, inside its transaction, for what the test has it return.
type gate struct {
	*worker
	entered chan struct{}
	leave   chan error
}

func newGate(db *testdb.DB) *gate {
	g := &gate{worker: newWorker(db), entered: make(chan struct{}, 1), leave: make(chan error, 1)}
	g.then = func(int, *message.Message) ([]*message.Message, error) {
		g.entered <- struct{}{}

		return nil, <-g.leave
	}

	return g
}

func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "32 deliveries of one event at once have one effect", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		require.OK(t, deliverTogether(32, ib, w.handle, "e1"))
		w.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "a duplicate waits and is one when the first commits", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib, first, second := newInbox(t, db), newGate(db), newWorker(db)

		firstDone := deliverAsync(ib, first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		secondDone := deliverAsync(ib, second.handle, delivery("e1"))
		awaitClaim(t, db, spy, 1)
		require.Equal(t, "deliveries that ended", len(secondDone), 0)

		first.leave <- nil

		require.OK(t, require.Await(t, "the first", firstDone).err)
		require.OK(t, require.Await(t, "the second", secondDone).err)
		second.requireRuns(t, 0)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "a duplicate waits and runs when the first rolls back", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib, first, second := newInbox(t, db), newGate(db), newWorker(db)
		failure := errors.New("failed")

		firstDone := deliverAsync(ib, first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		secondDone := deliverAsync(ib, second.handle, delivery("e1"))
		awaitClaim(t, db, spy, 1)

		first.leave <- failure

		require.ErrorIs(t, require.Await(t, "the first", firstDone).err, failure)
		require.OK(t, require.Await(t, "the second", secondDone).err)
		second.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "two inboxes on the same tables, as in two processes, have one effect", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		first, second := newGate(db), newWorker(db)

		firstDone := deliverAsync(newInbox(t, db), first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		other, err := inbox.New(db.DB, db.Engine.Dialect, inbox.WithTable(db.Inbox()), consumer(billing))
		require.OK(t, err)

		secondDone := deliverAsync(other, second.handle, delivery("e1"))
		awaitClaim(t, db, spy, 1)

		first.leave <- nil

		require.OK(t, require.Await(t, "the first", firstDone).err)
		require.OK(t, require.Await(t, "the second", secondDone).err)
		db.RequireOnce(t, "e1")
	})

	forEachPostgres(t, "another event does not wait", func(t *testing.T, db *testdb.DB) {
		ib, first, second := newInbox(t, db), newGate(db), newWorker(db)

		firstDone := deliverAsync(ib, first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		require.OK(t, require.Await(t, "the second", deliverAsync(ib, second.handle, delivery("e2"))).err)

		first.leave <- nil

		require.OK(t, require.Await(t, "the first", firstDone).err)
		db.RequireOnce(t, "e1", "e2")
	})

	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		forEachPostgres(t, level.String()+" deliveries of one event at once end with nil and one effect",
			func(t *testing.T, db *testdb.DB) {
				ib, w := newInbox(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: level})), newWorker(db)

				for _, id := range []string{"e1", "e2", "e3"} {
					require.OK(t, deliverTogether(16, ib, w.handle, id))
				}

				db.RequireOnce(t, "e1", "e2", "e3")
			})

		forEachPostgres(t, level.String()+" duplicate that waited for the first ends with nil", func(t *testing.T, db *testdb.DB) {
			db, spy := spied(t, db)
			ib := newInbox(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: level}))
			first, second := newGate(db), newWorker(db)

			firstDone := deliverAsync(ib, first.handle, delivery("e1"))
			require.Await(t, "the first handler", first.entered)

			secondDone := deliverAsync(ib, second.handle, delivery("e1"))
			awaitClaim(t, db, spy, 1)

			first.leave <- nil

			require.OK(t, require.Await(t, "the first", firstDone).err)
			require.OK(t, require.Await(t, "the second", secondDone).err)
			second.requireRuns(t, 0)
			db.RequireOnce(t, "e1")
		})
	}
}
