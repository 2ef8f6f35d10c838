package crash

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// Two workers that are half an hour ahead and half an hour behind.
const (
	ahead  = 30 * 60
	behind = -ahead
)

func clock(offset int) []string { return []string{fmt.Sprintf("%s=%d", clockOffset, offset)} }

// Only the database's clock says how long a lease lasts: nobody takes over before it has ended, whoever holds it, and
// everybody can after.
func TestLeasesLastAsLongBetweenClocksAnHourApart(t *testing.T) {
	t.Parallel()

	for name, clocks := range map[string][2]int{"taken over from ahead": {ahead, behind}, "taken over from behind": {behind, ahead}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const (
				events = 10
				lease  = 2 * time.Second
			)

			db := newTables(t, sharedPostgres(t))
			args := []string{"-dsn=" + db.DSN, "-schema=" + db.Schema, "-topic=orders", "-handlers=hold", "-lease=" + lease.String()}

			store(t, db, "hold", events)

			owner := start(t, newTally(), clockedWorker, clock(clocks[0]), args...)
			require.Eventually(t, "all messages are in hands", func() bool { return owner.told.of("hold called") == events })

			other := start(t, newTally(), clockedWorker, clock(clocks[1]), args...)
			began := db.now(t)

			require.Eventually(t, "two leases have passed", func() bool {
				require.Equal(t, "leases that are too long", db.Int(t, `SELECT count(*) FROM `+db.Table("inbox_payloads")+`
					WHERE due_at > clock_timestamp() + $1::bigint * interval '1 ms'`, lease.Milliseconds()), 0)

				return db.now(t).Sub(began) > 2*lease
			})
			require.Equal(t, "messages that were taken from their owner", other.told.of("hold called"), 0)
			owner.kill()

			require.Eventually(t, "all messages are in other hands", func() bool { return other.told.of("hold called") == events })
			other.release(t)
			require.Eventually(t, "all messages are finished", func() bool { return db.unfinished(t) == 0 })
			other.stop(t)
			require.Equal(t, "effects", db.effects(t, "once", events), effects{Rows: events, Events: events})
		})
	}
}

// Retries are due, and events are recorded, by the database's clock.
func TestEveryEventIsHandledOnceByClocksAnHourApart(t *testing.T) {
	t.Parallel()

	const events = 500

	db := newTables(t, sharedPostgres(t))
	began := db.now(t)

	store(t, db, "once", events)

	seed := newSeed(t)

	var workers []*process

	for i, offset := range []int{ahead, behind} {
		workers = append(workers, start(t, newTally(), clockedWorker, clock(offset), "-dsn="+db.DSN, "-schema="+db.Schema,
			"-topic=orders", "-handlers=once", "-trouble=100", fmt.Sprintf("-seed=%d", seed+uint64(i))))
	}

	await(t, "all messages to be finished", func() bool { return db.unfinished(t) == 0 })

	for _, worker := range workers {
		worker.stop(t)

		if worker.told.of("once failed") == 0 {
			t.Error("a worker had nothing to retry")
		}
	}

	require.Equal(t, "effects", db.effects(t, "once", events), effects{Rows: events, Events: events})
	require.Equal(t, "events whose times are by another clock", db.Int(t, `SELECT count(*) FROM `+db.Inbox()+`
		WHERE received_at NOT BETWEEN $1 AND now() OR processed_at NOT BETWEEN received_at AND now()`, began), 0)
}

func sharedPostgres(t *testing.T) string {
	t.Helper()

	dsn, err := servers.FromEnv("postgres")
	require.OK(t, err)

	return dsn
}

// now is what the time is for the database.
func (db tables) now(t *testing.T) (now time.Time) {
	t.Helper()
	require.OK(t, db.QueryRowContext(t.Context(), "SELECT clock_timestamp()").Scan(&now))

	return now
}

// store has the library store new events, and leaves them.
func store(t *testing.T, db tables, consumer string, events int) {
	t.Helper()

	broker := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	sub, err := db.New(t).Subscriber(consumer, broker)
	require.OK(t, err)

	_, err = sub.Subscribe(context.Background(), "orders")
	require.OK(t, err)

	for n := range events {
		require.OK(t, broker.Publish("orders", newMessage(eventName(n))))
	}

	require.Eventually(t, "all events are stored", func() bool { return db.unfinished(t) == 2*events })
	require.OK(t, sub.Close())
}
