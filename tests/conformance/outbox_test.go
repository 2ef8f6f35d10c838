package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func newUUID() string { return watermill.NewUUID() }

// queueSchema is watermill-sql's, in the schema of the test.
func queueSchema(db *testdb.DB) wsql.SchemaAdapter {
	return wsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: func(topic string) string { return db.Table("watermill_" + topic) },
		GeneratePayloadType:       func(string) string { return "bytea" },
	}
}

// rowPublisher is an outbox for SQLite, for which watermill-sql has no publisher.
type rowPublisher struct {
	tx    *sql.Tx
	table string
}

func (p rowPublisher) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		_, err := p.tx.ExecContext(context.Background(), "INSERT INTO "+p.table+" (uuid, payload) VALUES (?, ?)", msg.UUID, []byte(msg.Payload))
		if err != nil {
			return err
		}
	}

	return nil
}

func (rowPublisher) Close() error { return errors.New("closed") }

// newOutbox makes an outbox table for a topic, and returns the table and what WithOutbox needs.
func newOutbox(t testing.TB, db *testdb.DB, topic string) (table string, publisher func(tx *sql.Tx) (message.Publisher, error)) {
	t.Helper()

	table = db.Table("watermill_" + topic)

	if db.Engine.Dialect == inbox.SQLite {
		db.Exec(t, "CREATE TABLE "+table+" (uuid TEXT, payload BLOB)")

		return table, func(tx *sql.Tx) (message.Publisher, error) { return rowPublisher{tx, table}, nil }
	}

	queries, err := queueSchema(db).SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: topic})
	require.OK(t, err)

	for _, query := range queries {
		db.Exec(t, query.Query, query.Args...)
	}

	return table, func(tx *sql.Tx) (message.Publisher, error) {
		return wsql.NewPublisher(wsql.TxFromStdSQL(tx), wsql.PublisherConfig{SchemaAdapter: queueSchema(db)}, watermill.NopLogger{})
	}
}

func TestOutbox(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "publishes to the handler's topic within the transaction and returns none", func(t *testing.T, db *testdb.DB) {
		table, publisher := newOutbox(t, db, "invoices")
		count := func() int { return db.Int(t, "SELECT count(*) FROM "+table+" WHERE uuid IN ('o1', 'o2')") }
		ib, s, w := db.New(t, inbox.WithOutbox(publisher)), newStation(t), returning(db, delivery("o1"), delivery("o2"))
		s.AddMiddleware(ib.Middleware)
		s.AddHandler("billing", "orders", s.pubsub, "invoices", s.pubsub, w.handle)
		router := s.collect(t, "invoices")
		s.start(t)

		for range 3 {
			s.publish(t, "orders", delivery("e1"))
		}

		require.Equal(t, "messages in the outbox", count(), 2)
		require.Equal(t, "published by the router", len(router()), 0)
		requireStoredOutputs(t, db, 0)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "is not asked for a publisher without outputs", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db, inbox.WithOutbox(func(*sql.Tx) (message.Publisher, error) { panic("asked") }))

		for range 2 {
			_, err := deliver(ib, newWorker(db).handle, delivery("e1"))
			require.OK(t, err)
		}
	})

	forEachEngine(t, "that fails rolls everything back and redelivery runs", func(t *testing.T, db *testdb.DB) {
		table, publisher := newOutbox(t, db, "invoices")
		attempts := 0
		failing := func(tx *sql.Tx) (message.Publisher, error) {
			p, err := publisher(tx)

			switch attempts++; attempts {
			case 1: // after it has written
				return afterwards{p, errors.New("outbox failed")}, err
			case 2:
				return nil, errors.New("no publisher today")
			case 3:
				return nil, nil
			default:
				return p, err
			}
		}

		ib, s, w := db.New(t, inbox.WithOutbox(failing)), newStation(t), returning(db, delivery("o1"))
		errs := make(chan error, 10)
		s.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				outputs, err := h(msg)
				errs <- err

				return outputs, err
			}
		}, ib.Middleware)
		s.AddHandler("billing", "orders", s.pubsub, "invoices", s.pubsub, w.handle)
		s.start(t)
		s.publish(t, "orders", delivery("e1"))

		require.ErrorNames(t, <-errs, "WithOutbox", "outbox failed")
		require.ErrorNames(t, <-errs, "WithOutbox", "no publisher today")
		require.ErrorNames(t, <-errs, "WithOutbox", "no publisher")
		require.OK(t, <-errs)
		w.requireRuns(t, 4)
		db.RequireOnce(t, "e1")
		require.Equal(t, "messages in the outbox", db.Int(t, "SELECT count(*) FROM "+table), 1)
	})

	forEachEngine(t, "stored outputs of the time before it are still returned", func(t *testing.T, db *testdb.DB) {
		_, publisher := newOutbox(t, db, "invoices")
		w := returning(db, delivery("o1"))

		_, err := deliver(newInbox(t, db), w.handle, delivery("e1")) // publishing fails, and the option comes with the restart
		require.OK(t, err)

		outputs, err := deliver(newInbox(t, db, inbox.WithOutbox(publisher)), w.handle, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "outputs", uuids(outputs), []string{"o1"})
		w.requireRuns(t, 1)
	})

	forEachEngine(t, "needs a publish topic", func(t *testing.T, db *testdb.DB) {
		_, publisher := newOutbox(t, db, "invoices")

		_, err := deliver(newInbox(t, db, inbox.WithOutbox(publisher)), returning(db, delivery("o1")).handle, delivery("e1"))
		require.ErrorNames(t, err, "WithOutbox", "topic")
		db.RequireOnce(t)
		requireRecorded(t, db, 0)
	})
}

// afterwards publishes and then reports an error.
type afterwards struct {
	message.Publisher
	err error
}

func (p afterwards) Publish(topic string, messages ...*message.Message) error {
	return errors.Join(p.Publisher.Publish(topic, messages...), p.err)
}
