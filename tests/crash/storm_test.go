package crash

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// Everything that goes wrong in a year goes wrong in a minute: four workers with two consumers each, whose handlers
// fail and panic, are killed and stalled for longer than their leases while they work, the database and the broker go down, and a
// third of the events is delivered several times.
func TestEveryEventIsHandledWhateverIsKilled(t *testing.T) {
	t.Parallel()

	const (
		events  = 50_000
		workers = 4
		lease   = 2 * time.Second
	)

	seed := newSeed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	database, broker := startServer(t, "postgres"), startServer(t, "rabbitmq")
	db := newTables(t, database.Addr())
	began := time.Now()
	f := startFleet(t, random, workers, "-dsn="+database.Addr(), "-schema="+db.Schema, "-broker="+broker.Addr(), "-topic=orders",
		"-handlers=once,plain", "-ingest=64", "-concurrency=32", "-lease="+lease.String(), "-trouble=20")

	order := plan(random, events)
	publisher := &producer{addr: broker.Addr(), topic: "orders", handled: func() int {
		return min(f.told.of("once called"), f.told.of("plain called"))
	}}
	published := make(chan error, 1)

	go func() { published <- publisher.run(t.Context(), order) }()

	var mishaps []func()

	add := func(n int, mishap func()) {
		for range n {
			mishaps = append(mishaps, mishap)
		}
	}

	add(10, func() { f.kill(t) })
	add(12, func() { f.stall(t, lease*3/2) })
	add(1, func() { f.restart(t, database, database.Kill) })
	add(1, func() { f.restart(t, database, func() error { return database.Stop(context.Background()) }) })
	add(1, func() { f.restart(t, broker, broker.Kill) })
	random.Shuffle(len(mishaps), func(i, j int) { mishaps[i], mishaps[j] = mishaps[j], mishaps[i] })

	for i, mishap := range mishaps {
		// Each event is handled at least once by each consumer.
		when := (i + 1) * 2 * events * 9 / 10 / len(mishaps)
		await(t, "more events to be handled", func() bool {
			f.requireAlive(t)

			return f.told.of("once called", "plain called") >= when
		})
		mishap()
	}

	require.OK(t, <-published)
	await(t, "every event to be handled", func() bool {
		f.requireAlive(t)

		return db.unfinished(t) == 0 && db.Int(t, "SELECT count(*) FROM "+db.Inbox()) >= 2*events
	})

	for _, consumer := range []string{"once", "plain"} {
		await(t, "every duplicate to be delivered", func() bool {
			n, err := publisher.waiting(consumer)

			return err == nil && n == 0
		})
	}

	f.stop(t)

	seconds := time.Since(began).Seconds()
	once, plain := db.effects(t, "once", events), db.effects(t, "plain", events)

	t.Logf("%d events published in %d messages, %d more unconfirmed; for each of 2 consumers",
		events, publisher.published, publisher.unconfirmed)
	t.Logf("%d workers killed, %d stalled for %s, %d servers restarted; %.1f s", f.kills, f.stalled, lease*3/2, f.restarts, seconds)

	for _, consumer := range []string{"once", "plain"} {
		t.Logf("%-5s %6d deliveries, %d nacked, %d duplicates; handler called %d times: %d done, %d failed, %d lost their lease",
			consumer, f.told.of(consumer+" delivered"), f.told.of(consumer+" nacked"), f.told.of(consumer+" duplicate"),
			f.told.of(consumer+" called"), f.told.of(consumer+" done"), f.told.of(consumer+" failed"), f.told.of(consumer+" lost"))
	}

	t.Logf("effects: InTx %+v, without %+v", once, plain)

	require.Equal(t, "effects of InTx", once, effects{Rows: events, Events: events})
	require.Equal(t, "events without an effect of the plain handler", plain.Missing, 0)
	require.Equal(t, "events with an effect of the plain handler", plain.Events, events)
	require.Equal(t, "events in the ledger", db.Int(t, "SELECT count(*) FROM "+db.Inbox()+" WHERE processed_at IS NOT NULL"), 2*events)
	require.Equal(t, "rows in the ledger", db.Int(t, "SELECT count(*) FROM "+db.Inbox()), 2*events)
	require.Equal(t, "stored messages", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_payloads")), 0)
	require.Equal(t, "dead letters", f.told.of("once dead", "plain dead"), 0)

	for _, expected := range []string{"once duplicate", "once failed", "once lost", "plain failed"} {
		if f.told.of(expected) == 0 {
			t.Errorf("nothing of this happened: %s", expected)
		}
	}
}

// tables are a migrated inbox, and tables for effects in which nothing is unique.
type tables struct{ *testdb.DB }

func newTables(t *testing.T, dsn string) tables {
	t.Helper()

	db := tables{testdb.OpenOn(t, testdb.PQ, dsn)}
	db.New(t)

	for _, name := range []string{"once", "plain"} {
		db.Exec(t, "CREATE TABLE "+db.Table(name)+" (event text NOT NULL)")
	}

	return db
}

// unfinished counts stored messages and unprocessed events.
func (db tables) unfinished(t *testing.T) int {
	t.Helper()

	return db.Int(t, `SELECT (SELECT count(*) FROM `+db.Table("inbox_payloads")+`)
		+ (SELECT count(*) FROM `+db.Inbox()+` WHERE processed_at IS NULL)`)
}

// effects are what handlers wrote about a number of events.
type effects struct{ Rows, Events, Missing, Doubled int }

func (db tables) effects(t *testing.T, table string, events int) (e effects) {
	t.Helper()

	require.OK(t, db.QueryRowContext(t.Context(), `WITH found AS (
			SELECT event, count(*) AS n FROM `+db.Table(table)+` GROUP BY event
		)
		SELECT (SELECT count(*) FROM `+db.Table(table)+`), (SELECT count(*) FROM found),
			(SELECT count(*) FROM generate_series(0, $1 - 1) AS i WHERE NOT EXISTS (SELECT FROM found WHERE event = 'order-' || i)),
			(SELECT count(*) FROM found WHERE n > 1)`, events).Scan(&e.Rows, &e.Events, &e.Missing, &e.Doubled))

	return e
}

// await waits for what can take long on a machine that is busy.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()

	const patience = 5 * time.Minute

	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()

	for deadline := time.Now().Add(patience); !holds(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for %s", patience, what)
		}
	}
}
