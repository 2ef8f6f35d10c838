package proxies_test

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// A client that sends a statement in two round trips outside of a transaction may have it answered by a connection on
// which another client left a statement of its own, with an answer to that. Nothing that the inbox decides by may be
// sent like that: here the other's answer is "true", which looks like "known" to an inbox that asks about a fresh event.
func TestPgBouncerWithClientsThatLeaveStatementsBehind(t *testing.T) {
	t.Parallel()

	for _, way := range unprepared {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()

			proxy := startProxy(t)
			db := openThrough(t, proxy, way.engine, way.settings)

			var (
				runs    atomic.Int32
				h       = charge(db, &runs)
				publish = startConsumer(t, db.New(t, inbox.WithoutPreparedStatements()), h)
				ids     = eventIDs("event", 50)
			)

			leaveStatementsBehind(t, proxy)

			for _, id := range ids {
				for range 2 { // the second has the inbox expect another duplicate
					require.OK(t, publish(id))
				}
			}

			requireAllOnce(t, db, ids...)
		})
	}
}

// startConsumer runs a handler without outputs in a router; publish returns when the message was acked.
func startConsumer(t *testing.T, ib *inbox.Inbox, h message.HandlerFunc) (publish func(id string) error) {
	t.Helper()

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.OK(t, err)

	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, nil)

	router.AddMiddleware(ib.Middleware)
	router.AddConsumerHandler("billing", "orders", pubsub, func(msg *message.Message) error {
		_, err := h(msg)

		return err
	})

	stopped := make(chan error, 1)

	go func() { stopped <- router.Run(context.Background()) }()

	<-router.Running()
	t.Cleanup(func() {
		require.OK(t, router.Close())
		require.OK(t, <-stopped)
		require.OK(t, pubsub.Close())
	})

	return func(id string) error { return pubsub.Publish("orders", message.NewMessage(id, nil)) }
}

// leaveStatementsBehind has other clients run a correct program of their own through the proxy until the test ends: a
// query, sent in one round trip. There are more of them than connections, so that none is idle for long.
func leaveStatementsBehind(t *testing.T, proxy string) {
	t.Helper()

	other, err := sql.Open("pgx", proxy+"&default_query_exec_mode=exec")
	require.OK(t, err)

	ctx, cancel := context.WithCancel(context.Background())

	var clients sync.WaitGroup

	for range 2 * servers.PgBouncerPoolSize {
		clients.Go(func() {
			for ctx.Err() == nil {
				var answer bool
				if err := other.QueryRowContext(context.Background(), `SELECT $1::text <> ''`, "a").Scan(&answer); err != nil {
					t.Error(err)

					return
				}
			}
		})
	}

	t.Cleanup(func() {
		cancel()
		clients.Wait()
		require.OK(t, other.Close())
	})
}
