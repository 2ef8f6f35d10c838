package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestClaim(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "fresh event is handled once and redeliveries are duplicates", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		for range 3 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			requireOK(t, err)
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
		requireOK(t, err)

		requireEqual(t, "matching rows", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")+` WHERE consumer = 'billing'
			AND source = 'shop' AND event_id = 'e1' AND event_type = 'OrderPlaced'
			AND received_at IS NOT NULL AND processed_at IS NOT NULL`), 1)
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
				requireOK(t, err)
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
			requireOK(t, err)
		}

		db.RequireOnce(t, "e1")
	})

	for name, before := range map[string][]string{"a fresh event": {"e0"}, "a duplicate": {"e0", "e0"}} {
		// camel 24809
		forEachEngine(t, "a claim that failed after "+name+" leaves nothing that hides the event later", func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db), newWorker(db)

			for _, id := range before {
				_, err := deliver(ib, w.handle, delivery(id))
				requireOK(t, err)
			}

			db.Exec(t, "ALTER TABLE "+db.Table("inbox")+" RENAME TO away")

			_, err := deliver(ib, w.handle, delivery("e1"))
			requireErrorIs(t, err, inbox.ErrNotMigrated)

			db.Exec(t, "ALTER TABLE "+db.Table("away")+" RENAME TO inbox")

			for range 2 {
				_, err = deliver(ib, w.handle, delivery("e1"))
				requireOK(t, err)
			}

			db.RequireOnce(t, "e0", "e1")
		})
	}
}

func TestClaimCost(t *testing.T) {
	t.Parallel()

	// warm brings the inbox to where statements are prepared.
	warm := func(t *testing.T, db *testdb.DB, ib *inbox.Inbox) {
		_, err := deliver(ib, newWorker(db).handle, delivery("warm"))
		requireOK(t, err)
	}

	forEachEngine(t, "a fresh event costs one INSERT and no UPDATE", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib := newInbox(t, db)
		warm(t, db, ib)
		spy.forget()

		_, err := deliver(ib, newWorker(db).handle, delivery("e1"))
		requireOK(t, err)

		sent := costly(db, spy.queries())
		requireEqual(t, "number of statements "+strings.Join(sent, "; "), len(sent), 4)
		requireEqual(t, "first", sent[0], "BEGIN")
		requireEqual(t, "statements on the ledger", len(costly(db, spy.queries(`"inbox`))), 1)
		requireEqual(t, "inserts into the ledger", len(spy.queries("INSERT INTO "+db.Table("inbox")+" ")), 1)
		requireEqual(t, "handler's", sent[2], insertEffect(db))
		requireEqual(t, "last", sent[3], "COMMIT")
	})

	forEachEngine(t, "a fresh event with outputs costs one more INSERT", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib := newInbox(t, db)
		warm(t, db, ib)
		spy.forget()

		_, err := deliver(ib, func(*message.Message) ([]*message.Message, error) {
			return message.Messages{delivery("o1"), delivery("o2")}, nil
		}, delivery("e1"))
		requireOK(t, err)
		requireEqual(t, "statements", len(costly(db, spy.queries())), 4)
		requireEqual(t, "inserts of outputs", len(spy.queries("INSERT INTO "+db.Table("inbox_outputs"))), 1)
	})

	for name, add := range map[string]func(s *station, h message.NoPublishHandlerFunc) *message.Handler{
		"consumer handler": func(s *station, h message.NoPublishHandlerFunc) *message.Handler {
			return s.AddConsumerHandler("h", "orders", s.pubsub, h)
		},
		"no-publisher handler": func(s *station, h message.NoPublishHandlerFunc) *message.Handler {
			return s.AddNoPublisherHandler("h", "orders", s.pubsub, h) //nolint:staticcheck // deprecated, and in use
		},
	} {
		forEachEngine(t, "a duplicate for a "+name+" costs one statement and no look at outputs", func(t *testing.T, db *testdb.DB) {
			db, spy := spied(t, db)
			ib, s, w := db.New(t), newStation(t), newWorker(db)
			add(s, asConsumer(w.handle)).AddMiddleware(ib.Middleware)
			s.start(t)
			s.publish(t, "orders", delivery("e1"))

			for range 3 {
				spy.forget()
				s.publish(t, "orders", delivery("e1"))
				requireEqual(t, "statements on the ledger", len(spy.queries(db.Table("inbox"))), 1)
				requireEqual(t, "statements on the outputs", len(spy.queries("inbox_outputs")), 0)
			}

			w.requireRuns(t, 1)
		})
	}

	forEachPostgres(t, "a duplicate assigns no transaction id", func(t *testing.T, db *testdb.DB) {
		private := privatePostgres(t, db.Engine)
		ib, w := newInbox(t, private), newWorker(private)
		handle := func(id string) {
			_, err := deliver(ib, w.handle, delivery(id))
			requireOK(t, err)
		}
		next := func() int { return private.Int(t, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint") }

		handle("e1")

		before := next()

		for range 20 {
			handle("e1")
		}

		requireEqual(t, "next transaction id after 20 duplicates", next(), before)
		handle("e2")
		requireEqual(t, "next transaction id after a fresh event", next(), before+1)
	})

	// Wolverine 2648, camel 24710, spring-integration 3609
	forEachEngine(t, "a duplicate is told by rows affected and raises no database error", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib, w := newInbox(t, db), newWorker(db)

		for range 3 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			requireOK(t, err)
		}

		w.requireRuns(t, 1)
		spy.requireNoErrors(t)
	})

	forEachPostgres(t, "a duplicate leaves the connection usable", func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(1)
		ib, w := newInbox(t, db), newWorker(db)

		for _, id := range []string{"e1", "e1", "e2", "e2"} {
			_, err := deliver(ib, w.handle, delivery(id))
			requireOK(t, err)
			requireOK(t, db.PingContext(context.Background()))
		}

		db.RequireOnce(t, "e1", "e2")
	})

	forEachPostgres(t, "handling updates no row, failed or not", func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(1) // statistics of one's own transactions are exact within their session
		ib, w := newInbox(t, db), newWorker(db)
		failure := failing(db, errors.New("failed"))

		for range 3 {
			_, err := deliver(ib, w.handle, delivery("e1"))
			requireOK(t, err)

			_, _ = deliver(ib, failure.handle, delivery("e2"))
		}

		requireEqual(t, "updates and deletes", db.Int(t, `SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)
			+ coalesce((SELECT sum(n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables WHERE schemaname = $1), 0)
			FROM pg_stat_user_tables WHERE schemaname = $1`, db.Schema), 0)
		db.RequireOnce(t, "e1", "e2")
	})
}

// costly leaves out what SQLite reads within the process.
func costly(db *testdb.DB, queries []string) []string {
	return slices.DeleteFunc(queries, func(query string) bool {
		return db.Engine.Dialect == inbox.SQLite && (strings.HasPrefix(query, "PRAGMA") || strings.HasPrefix(query, "SELECT"))
	})
}

// privatePostgres is a server without other traffic.
func privatePostgres(t *testing.T, engine testdb.Engine) *testdb.DB {
	t.Helper()

	server := servers.NewPostgres(t.TempDir())
	requireOK(t, server.Start(t.Context()))
	t.Cleanup(func() { requireOK(t, server.Stop(context.Background())) })

	db, err := sql.Open(engine.Driver, server.Addr())
	requireOK(t, err)
	t.Cleanup(func() { requireOK(t, db.Close()) })

	private := &testdb.DB{DB: db, Engine: engine, DSN: server.Addr(), Schema: "public"}
	private.Exec(t, "ALTER SYSTEM SET autovacuum = off")
	private.Exec(t, "SELECT pg_reload_conf()")
	private.EffectsTable(t)

	return private
}
