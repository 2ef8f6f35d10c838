package conformance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestClaim(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "fresh event is handled once and redeliveries are duplicates", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		for range 3 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
		}

		w.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
		requireRecorded(t, db, 1)
	})

	forEachEngine(t, "the row says who handled what and that it is processed", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)

		msg := delivery("e1")
		msg.Metadata.Set("event_source", "shop")
		msg.Metadata.Set("event_type", "OrderPlaced")

		_, err := deliver(ib, newWorker(db).handle, msg)
		require.OK(t, err)

		require.Equal(t, "matching rows", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")+` WHERE consumer = 'billing'
			AND source = 'shop' AND event_id = 'e1' AND event_type = 'OrderPlaced'
			AND received_at IS NOT NULL AND processed_at IS NOT NULL`), 1)

		var received, processed time.Time

		err = db.QueryRowContext(t.Context(), "SELECT received_at, processed_at FROM "+db.Table("inbox")).Scan(&received, &processed)
		require.OK(t, err)

		for _, at := range []time.Time{received, processed} {
			if ago := time.Since(at); ago < -time.Minute || ago > time.Minute {
				t.Errorf("time in the row is %s, which is %s ago", at, ago)
			}
		}
	})

	// NServiceBus.NHibernate 117, MassTransit 3543
	forEachEngine(t, "two consumers of one topic each handle an event once", func(t *testing.T, db *testdb.DB) {
		ib, s := db.New(t), newStation(t)
		s.AddMiddleware(ib.Middleware)

		for _, name := range []string{"billing", "shipping"} {
			s.AddConsumerHandler(name, "orders", s.pubsub, func(msg *message.Message) error {
				return effectNamed(db, msg.Context(), name)
			})
		}

		s.start(t)

		for range 3 {
			s.publish(t, "orders", delivery("e1"))
		}

		db.RequireOnce(t, "billing", "shipping")
		requireRecorded(t, db, 2)
	})

	forEachEngine(t, "two sources that use the same id make two events", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)
		h := func(msg *message.Message) ([]*message.Message, error) {
			return nil, effectNamed(db, msg.Context(), msg.Metadata.Get("event_source"))
		}

		for range 2 {
			for _, source := range []string{"shop", "store"} {
				msg := delivery("e1")
				msg.Metadata.Set("event_source", source)

				_, err := deliver(ib, h, msg)
				require.OK(t, err)
			}
		}

		db.RequireOnce(t, "shop", "store")
	})

	forEachEngine(t, "two topics that carry the same id make two events", func(t *testing.T, db *testdb.DB) {
		ib, s := db.New(t, consumer(billing)), newStation(t)
		s.AddMiddleware(ib.Middleware)

		for _, topic := range []string{"orders", "refunds"} {
			s.AddConsumerHandler(topic, topic, s.pubsub, func(msg *message.Message) error {
				return effectNamed(db, msg.Context(), topic)
			})
		}

		s.start(t)

		for range 2 {
			s.publish(t, "orders", delivery("1"))
			s.publish(t, "refunds", delivery("1"))
		}

		db.RequireOnce(t, "orders", "refunds")
	})

	forEachEngine(t, "another inbox on the same tables knows the event", func(t *testing.T, db *testdb.DB) {
		w := newWorker(db)

		for range 2 { // as after a restart
			_, err := deliver(newInbox(t, db), w.handle, delivery("e1"))
			require.OK(t, err)
		}

		db.RequireOnce(t, "e1")
	})

	for name, before := range map[string][]string{"a fresh event": {"e0"}, "a duplicate": {"e0", "e0"}} {
		// camel 24809
		forEachEngine(t, "a claim that failed after "+name+" leaves nothing that hides the event later", func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db), newWorker(db)

			for _, id := range before {
				_, err := deliver(ib, w.handle, delivery(id))
				require.OK(t, err)
			}

			db.Exec(t, "ALTER TABLE "+db.Table("inbox")+" RENAME TO away")

			_, err := deliver(ib, w.handle, delivery("e1"))
			require.ErrorIs(t, err, inbox.ErrNotMigrated)

			db.Exec(t, "ALTER TABLE "+db.Table("away")+" RENAME TO inbox")

			for range 2 {
				_, err = deliver(ib, w.handle, delivery("e1"))
				require.OK(t, err)
			}

			db.RequireOnce(t, "e0", "e1")
		})
	}
}

func TestClaimCost(t *testing.T) {
	t.Parallel()

	const freshCosts = "a fresh event costs one INSERT and no UPDATE, and one more INSERT with outputs"

	testdb.ForEach(t, sqliteOnly, freshCosts, func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		testFreshCost(t, db, func() []string { return withoutReads(spy.take()) })
	})

	// A spy would hide the driver, by which the inbox knows what it need not ask, and others' traffic takes transaction ids.
	forEachPostgres(t, "on a server without other traffic", func(t *testing.T, db *testdb.DB) {
		db, sent := loggingPostgres(t, db.Engine)

		t.Run(freshCosts, func(t *testing.T) { testFreshCost(t, db, sent) }) //nolint:paralleltest // they share the server
		t.Run("a duplicate assigns no transaction id", func(t *testing.T) {  //nolint:paralleltest // they share the server
			testDuplicateTakesNoXID(t, db)
		})
	})

	for name, add := range map[string]func(s *station, h message.NoPublishHandlerFunc) *message.Handler{
		"consumer handler": func(s *station, h message.NoPublishHandlerFunc) *message.Handler {
			return s.AddConsumerHandler("h", "orders", s.pubsub, h)
		},
		"no-publisher handler": func(s *station, h message.NoPublishHandlerFunc) *message.Handler {
			return s.AddNoPublisherHandler("h", "orders", s.pubsub, h) //nolint:staticcheck // deprecated, and in use
		},
	} {
		forEachEngine(t, "a duplicate for a "+name+" costs two statements at most, writes nothing and does not look at outputs", func(t *testing.T, db *testdb.DB) {
			db, spy := spied(t, db)
			ib, s, w := db.New(t), newStation(t), newWorker(db)
			add(s, asConsumer(w.handle)).AddMiddleware(ib.Middleware)
			s.start(t)
			s.publish(t, "orders", delivery("e1"))

			for range 3 {
				spy.forget()
				s.publish(t, "orders", delivery("e1"))

				// The claim, and whether the row it found is that of a processed event; in a run of duplicates only the latter.
				if n := len(spy.queries(db.Table("inbox"))); n > 2 {
					t.Errorf("%d statements on the ledger, want 2 at most", n)
				}

				require.Equal(t, "statements on the outputs", len(spy.queries("inbox_outputs")), 0)
			}

			w.requireRuns(t, 1)
		})
	}

	// Wolverine 2648, camel 24710, spring-integration 3609
	forEachEngine(t, "a duplicate is told by rows affected and raises no database error", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib, w := newInbox(t, db), newWorker(db)

		for range 3 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
		}

		w.requireRuns(t, 1)
		spy.requireNoErrors(t)
	})

	forEachPostgres(t, "a duplicate leaves the connection usable", func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(1)
		ib, w := newInbox(t, db), newWorker(db)

		for _, id := range []string{"e1", "e1", "e2", "e2"} {
			_, err := deliver(ib, w.handle, delivery(id))
			require.OK(t, err)
			require.OK(t, db.PingContext(context.Background()))
		}

		db.RequireOnce(t, "e1", "e2")
	})

	forEachPostgres(t, "handling updates no row, failed or not", func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(1) // statistics of one's own transactions are exact within their session
		ib, w := newInbox(t, db), newWorker(db)
		failure := failing(db, errors.New("failed"))

		for range 3 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)

			_, _ = deliver(ib, failure.handle, delivery("e2"))
		}

		require.Equal(t, "updates and deletes", db.Int(t, `SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)
			+ coalesce((SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables WHERE schemaname = $1), 0)
			FROM pg_stat_user_tables WHERE schemaname = $1`, db.Schema), 0)
		db.RequireOnce(t, "e1", "e2")
	})
}

func testFreshCost(t *testing.T, db *testdb.DB, sent func() []string) {
	t.Helper()

	ib := newInbox(t, db)
	requireSent := func(id string, outputs []*message.Message, want ...string) {
		t.Helper()
		sent()

		_, err := deliver(ib, returning(db, outputs...).handle, delivery(id))
		require.OK(t, err)

		got := sent()
		require.Equal(t, "number of statements "+strings.Join(got, "; "), len(got), len(want))

		for i, beginning := range want {
			if !strings.HasPrefix(strings.ToUpper(got[i]), strings.ToUpper(beginning)) {
				t.Errorf("statement %d is %s, want %s", i+1, got[i], beginning)
			}
		}
	}

	_, err := deliver(ib, newWorker(db).handle, delivery("prepares"))
	require.OK(t, err)

	claim, write := "INSERT INTO "+db.Table("inbox")+" ", insertEffect(db)
	requireSent("e1", nil, "BEGIN", claim, write, "COMMIT")
	requireSent("e2", []*message.Message{delivery("o1"), delivery("o2")},
		"BEGIN", claim, write, "INSERT INTO "+db.Table("inbox_outputs")+" ", "COMMIT")
}

func testDuplicateTakesNoXID(t *testing.T, db *testdb.DB) {
	t.Helper()

	ib, w := newInbox(t, db), newWorker(db)
	handle := func(id string) {
		_, err := deliver(ib, w.handle, delivery(id))
		require.OK(t, err)
	}
	next := func() int { return db.Int(t, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint") }

	handle("x1")

	before := next()

	for range 20 {
		handle("x1")
	}

	require.Equal(t, "next transaction id after 20 duplicates", next(), before)
	handle("x2")
	require.Equal(t, "next transaction id after a fresh event", next(), before+1)
}
