package stored_test

import (
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// mixed has one consumer's events in every state: received1, received2, leased1, waiting1, dead1 and done1.
func mixed(t testing.TB, db *testdb.DB) *process {
	t.Helper()

	p := start(t, db.New(t), retryNever, inbox.WithMaxAttempts(2), inbox.WithConcurrency(1))
	p.store(t, "done1")
	p.requireHandedOut(t, "done1")

	p.store(t, "dead1")
	p.next(t).Nack()
	awaitRelease(t, db, "dead1")
	setDue(t, db, "dead1", -time.Second)
	p.die(t, db, "dead1")

	p.store(t, "waiting1")
	require.ErrorIs(t, write(db, p.next(t), errBroken), errBroken)
	p.inHand[len(p.inHand)-1].Nack()
	awaitRelease(t, db, "waiting1")

	p.store(t, "leased1")
	p.next(t)
	p.store(t, "received1", "received2")

	return p
}

func TestStats(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "count the unfinished events of each consumer by state", func(t *testing.T, db *testdb.DB) {
		p := mixed(t, db)

		b := newBroker()
		sub, err := p.Subscriber("archive", b, inbox.WithConcurrency(1))
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, closeAsync(t, sub)) })

		messages := subscribe(t, sub, orders)
		sent := delivery("a1")
		b.send(t, orders, sent)
		requireAcked(t, sent)

		msg := nextOf(t, messages)
		t.Cleanup(func() { msg.Ack() })

		age := "now() - interval '1 hour'"
		if db.Engine.Dialect == inbox.SQLite {
			age = "strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 hour')"
		}

		for _, id := range []string{"waiting1", "dead1", "done1"} {
			db.Exec(t, "UPDATE "+db.Table("inbox")+" SET received_at = "+age+" WHERE event_id = $1", id)
		}

		stats, err := p.Stats(t.Context())
		require.OK(t, err)
		require.Equal(t, "number of consumers", len(stats.Consumers), 2)

		for i, within := range []struct{ least, most time.Duration }{{0, time.Minute}, {time.Hour, time.Hour + time.Minute}} {
			if oldest := stats.Consumers[i].OldestUnprocessed; oldest < within.least || oldest > within.most {
				t.Errorf("the oldest of %s is %s old", stats.Consumers[i].Consumer, oldest)
			}

			stats.Consumers[i].OldestUnprocessed = 0
		}

		require.Equal(t, "counts", stats.Consumers, []inbox.ConsumerStats{
			{Consumer: "archive", Leased: 1},
			{Consumer: billing, Received: 2, Leased: 1, Waiting: 1, Dead: 1},
		})
	})

	forEachEngine(t, "know of no consumer when all is done, and of one with dead letters alone no age", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithMaxAttempts(1))
		p.store(t, "e1")
		p.requireHandedOut(t, "e1")
		awaitFinished(t, db, "e1")

		stats, err := p.Stats(t.Context())
		require.OK(t, err)
		require.Equal(t, "number of consumers", len(stats.Consumers), 0)

		p.store(t, "e2")
		p.die(t, db, "e2")

		stats, err = p.Stats(t.Context())
		require.OK(t, err)
		require.Equal(t, "counts", stats.Consumers, []inbox.ConsumerStats{{Consumer: billing, Dead: 1}})
	})

	forEachEngine(t, "take a lease that has ended for an attempt that waits", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")
		p.next(t)
		steal(t, db, "e1", time.Hour)
		p.close(t)
		setDue(t, db, "e1", -time.Second)

		stats, err := p.Stats(t.Context())
		require.OK(t, err)

		stats.Consumers[0].OldestUnprocessed = 0
		require.Equal(t, "counts", stats.Consumers, []inbox.ConsumerStats{{Consumer: billing, Waiting: 1}})
	})
}

func TestStale(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "are events that are neither processed nor dead, oldest first, with their messages", func(t *testing.T, db *testdb.DB) {
		p := mixed(t, db)

		stale, err := p.Stale(t.Context(), 0)
		require.OK(t, err)

		var got []string
		for _, e := range stale {
			got = append(got, e.Event.ID+" "+string(e.State))
			require.Equal(t, "payload", string(e.Message.Payload), "payload of "+e.Event.ID)
			require.Equal(t, "topic", e.Topic, orders)
			require.Equal(t, "processed at", e.ProcessedAt, time.Time{})
		}

		require.Equal(t, "stale", got, []string{"waiting1 waiting", "leased1 leased", "received1 received", "received2 received"})
		require.Equal(t, "last error", stale[0].LastError, "broken")
		require.Equal(t, "attempts", stale[0].Attempts, 1)

		if wait := time.Until(stale[0].NextAttemptAt); wait < 29*time.Minute || wait > time.Hour {
			t.Errorf("the next attempt is in %s", wait)
		}

		require.Equal(t, "next attempt of what is leased", stale[1].NextAttemptAt, time.Time{})
	})

	forEachEngine(t, "are not younger than the age", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		stale, err := p.Stale(t.Context(), time.Hour)
		require.OK(t, err)
		require.Equal(t, "stale", len(stale), 0)

		_, err = p.Stale(t.Context(), -time.Second)
		require.ErrorNames(t, err, "-1s", "negative")
	})

	forEachEngine(t, "of missing tables is ErrNotMigrated, as Dead and Stats are", func(t *testing.T, db *testdb.DB) {
		ib, err := inbox.New(db.DB, db.Engine.Dialect, inbox.WithTable(db.Inbox()))
		require.OK(t, err)

		_, err = ib.Stale(t.Context(), 0)
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
		_, err = ib.Dead(t.Context(), 1)
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
		_, err = ib.Stats(t.Context())
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
		_, err = ib.Requeue(t.Context(), inbox.Key{})
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
		_, err = ib.Discard(t.Context(), inbox.Key{})
		require.ErrorIs(t, err, inbox.ErrNotMigrated)
	})
}
