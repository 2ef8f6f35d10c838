package crash

import (
	"context"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// The database goes away under a worker whose hands are full. Nothing can be stored meanwhile, so everything goes back to the
// broker, and nothing is lost.
func TestDatabaseThatGoesAwayForLongerThanALease(t *testing.T) {
	t.Parallel()

	o := startOutage(t, "hold", time.Second)
	o.during(t, func() {
		require.Eventually(t, "handlers hear that they lost their leases", func() bool { return o.told.of("hold lost") == o.inHand })
	})
	o.worker.release(t)
	o.requireAllFinished(t)
	require.Equal(t, "effects", o.db.effects(t, "once", o.published), effects{Rows: o.published, Events: o.published})
}

// A handler that needs no database does not notice, and its message is completed once the database is back.
func TestDatabaseThatGoesAwayForLessThanALease(t *testing.T) {
	t.Parallel()

	o := startOutage(t, "gate", 10*time.Minute)
	o.during(t, func() {
		o.worker.release(t)
		require.Eventually(t, "handlers finish", func() bool { return o.told.of("gate done") == o.inHand })
	})
	o.requireAllFinished(t)
	require.Equal(t, "calls of the handler", o.told.of("gate called"), o.published)
}

// outage is a worker whose database goes away.
type outage struct {
	consumer          string
	db                tables
	server            servers.Server
	producer          *producer
	worker            *process
	told              *tally
	inHand, published int
}

// startOutage starts a worker and has it take as many messages as it can.
func startOutage(t *testing.T, handler string, lease time.Duration) *outage {
	t.Helper()

	const concurrency = 16

	broker, err := servers.FromEnv("rabbitmq")
	require.OK(t, err)

	o := &outage{consumer: handler, server: startServer(t, "postgres"), told: newTally(), inHand: concurrency}
	o.db = newTables(t, o.server.Addr())
	o.producer = &producer{addr: broker, topic: o.db.Schema, handled: func() int { return o.published }}
	o.worker = start(t, o.told, racedWorker, nil, "-dsn="+o.db.DSN, "-schema="+o.db.Schema, "-broker="+broker, "-topic="+o.db.Schema,
		"-handlers="+handler, "-lease="+lease.String())

	o.publish(t, concurrency)
	require.Eventually(t, "a worker has its hands full", func() bool { return o.told.of(handler+" called") == concurrency })

	return o
}

func (o *outage) publish(t *testing.T, events int) {
	t.Helper()

	var order []int
	for range events {
		order = append(order, o.published)
		o.published++
	}

	require.OK(t, o.producer.run(t.Context(), order))
}

// during takes the database away, and brings it back after fn.
func (o *outage) during(t *testing.T, fn func()) {
	t.Helper()
	require.OK(t, o.server.Kill())
	o.publish(t, 10)
	require.Eventually(t, "the broker gets a message back", func() bool { return o.told.of(o.consumer+" nacked") > 1 })
	fn()
	require.Equal(t, "duplicates of what could not be stored", o.told.of(o.consumer+" duplicate"), 0)
	require.OK(t, o.server.Start(context.Background()))
}

func (o *outage) requireAllFinished(t *testing.T) {
	t.Helper()
	require.Eventually(t, "every event is in the ledger", func() bool {
		return o.db.Int(t, "SELECT count(*) FROM "+o.db.Inbox()) == o.published
	})
	require.Eventually(t, "every event is finished", func() bool { return o.db.unfinished(t) == 0 })
	o.worker.stop(t)
}
