package conformance_test

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestOptions(t *testing.T) {
	t.Parallel()

	text := func(*message.Message) string { return "x" }
	bad := []struct {
		names []string // words of the error
		opts  []inbox.Option
	}{
		{[]string{"option", "nil"}, []inbox.Option{nil}},
		{[]string{"option 2 of 2", "nil"}, []inbox.Option{inbox.WithoutPreparedStatements(), nil}},
		{[]string{"WithEventID"}, []inbox.Option{inbox.WithEventID()}},
		{[]string{"WithEventID", "nil"}, []inbox.Option{inbox.WithEventID(nil)}},
		{[]string{"WithEventID", "2", "nil"}, []inbox.Option{inbox.WithEventID(text, nil)}},
		{[]string{"WithSource", "nil"}, []inbox.Option{inbox.WithSource(nil)}},
		{[]string{"WithEventType", "nil"}, []inbox.Option{inbox.WithEventType(nil)}},
		{[]string{"WithConsumer", "nil"}, []inbox.Option{inbox.WithConsumer(nil)}},
		{[]string{"WithEventTime", "nil"}, []inbox.Option{inbox.WithEventTime(nil)}},
		{[]string{"WithTxOptions", "nil"}, []inbox.Option{inbox.WithTxOptions(nil)}},
		{[]string{"WithTxOptions", "ReadOnly"}, []inbox.Option{inbox.WithTxOptions(&sql.TxOptions{ReadOnly: true})}},
		{[]string{"WithTxTimeout", "0s"}, []inbox.Option{inbox.WithTxTimeout(0)}},
		{[]string{"WithTxTimeout", "-1s"}, []inbox.Option{inbox.WithTxTimeout(-time.Second)}},
		{[]string{"WithLockTimeout", "0s"}, []inbox.Option{inbox.WithLockTimeout(0)}},
		{[]string{"WithLockTimeout", "-1ns"}, []inbox.Option{inbox.WithLockTimeout(-1)}},
		{[]string{"WithLockTimeout"}, []inbox.Option{inbox.WithLockTimeout(math.MaxInt64)}},
		{[]string{"WithMaxTxRetries", "0"}, []inbox.Option{inbox.WithMaxTxRetries(0)}},
		{[]string{"WithMaxTxRetries", "-1"}, []inbox.Option{inbox.WithMaxTxRetries(-1)}},
		{[]string{"WithOutbox", "nil"}, []inbox.Option{inbox.WithOutbox(nil)}},
		{[]string{"WithLogger", "nil"}, []inbox.Option{inbox.WithLogger(nil)}},
		{[]string{"WithTable"}, []inbox.Option{inbox.WithTable("")}},
		{
			[]string{"WithLockTimeout(1s)", "WithTxTimeout(1s)"},
			[]inbox.Option{inbox.WithLockTimeout(time.Second), inbox.WithTxTimeout(time.Second)},
		},
		{
			[]string{"WithLockTimeout(2s)", "WithTxTimeout(1s)"},
			[]inbox.Option{inbox.WithTxTimeout(time.Second), inbox.WithLockTimeout(2 * time.Second)},
		},
	}

	forEachEngine(t, "that make no sense are errors of New and Schema that name them", func(t *testing.T, db *testdb.DB) {
		for _, c := range bad {
			ib, err := inbox.New(db.DB, db.Engine.Dialect, c.opts...)
			require.ErrorNames(t, err, append(c.names, "inbox")...)
			require.Equal(t, "no inbox", ib == nil, true)

			ddl, err := inbox.Schema(db.Engine.Dialect, c.opts...)
			require.ErrorNames(t, err, append(c.names, "inbox")...)
			require.Equal(t, "schema", ddl, "")
		}
	})

	forEachEngine(t, "nil db and unknown dialects are errors", func(t *testing.T, db *testdb.DB) {
		_, err := inbox.New(nil, db.Engine.Dialect)
		require.ErrorNames(t, err, "db", "nil")

		for _, dialect := range []inbox.Dialect{0, 99, math.MaxUint8} {
			_, err = inbox.New(db.DB, dialect)
			require.ErrorNames(t, err, "dialect", fmt.Sprint(uint8(dialect)))

			_, err = inbox.Schema(dialect)
			require.ErrorNames(t, err, "dialect")
		}
	})

	forEachEngine(t, "the last of two equal ones wins, and a caller's later change does not count", func(t *testing.T, db *testdb.DB) {
		fns := []func(*message.Message) string{text}
		txOptions := &sql.TxOptions{}
		ib := newInbox(t, db, consumer("first"), inbox.WithEventID(fns...), inbox.WithTxOptions(txOptions), consumer("last"))
		fns[0] = func(*message.Message) string { return "changed" }
		txOptions.ReadOnly = true

		ev := identified(t, ib, delivery("e1"))
		require.Equal(t, "consumer", ev.Consumer, "last")
		require.Equal(t, "id", ev.ID, "x")

		_, err := deliver(ib, newWorker(db).handle, delivery("e1"))
		require.OK(t, err)
	})

	forEachPostgres(t, "WithTxOptions sets the isolation level that the handler runs at", func(t *testing.T, db *testdb.DB) {
		for level, want := range map[sql.IsolationLevel]string{
			sql.LevelReadCommitted: "read committed", sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
		} {
			ib := newInbox(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: level}))

			_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
				tx, _ := inbox.TxFromContext(msg.Context())

				var got string

				require.OK(t, tx.QueryRowContext(msg.Context(), "SHOW transaction_isolation").Scan(&got))
				require.Equal(t, "isolation", got, want)

				return nil, nil
			}, delivery(want))
			require.OK(t, err)
		}
	})
}

func TestConnections(t *testing.T) {
	t.Parallel()

	for name, opts := range map[string][]inbox.Option{
		"":                                nil,
		" unprepared":                     {inbox.WithoutPreparedStatements()},
		" with lock timeout":              {inbox.WithLockTimeout(require.Patience)},
		" unprepared, with both timeouts": {inbox.WithoutPreparedStatements(), inbox.WithLockTimeout(short), inbox.WithTxTimeout(require.Patience)},
	} {
		forEachEngine(t, "one connection is enough"+name, func(t *testing.T, db *testdb.DB) {
			db.SetMaxOpenConns(1)

			bare := newBare(t, db, opts...) // the first message meets missing tables
			_, err := deliver(bare, newWorker(db).handle, delivery("e1"))
			require.ErrorIs(t, err, inbox.ErrNotMigrated)
			require.OK(t, bare.Migrate(t.Context()))

			w := returning(db, delivery("o1"))

			for _, ib := range []*inbox.Inbox{bare, newInbox(t, db, opts...)} {
				for _, id := range []string{"e1", "e1", "e1", "e2", "e2"} {
					done := deliverAsync(ib, w.handle, delivery(id))
					r := require.Await(t, "a delivery on one connection", done)
					require.OK(t, r.err)
					require.Equal(t, "outputs", uuids(r.outputs), []string{"o1"})
				}
			}

			known, err := bare.Forget(context.Background(), inbox.Event{Consumer: billing, ID: "e1"})
			require.OK(t, err)
			require.Equal(t, "known", known, true)
			db.RequireOnce(t, "e1", "e2")
		})
	}

	forEachEngine(t, "unprepared sends no PREPARE", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib := newInbox(t, db, inbox.WithoutPreparedStatements())
		requireWorks(t, db, ib, "e1")
		require.Equal(t, "prepared", spy.preparations(), 0)
	})

	forEachEngine(t, "prepared statements are prepared once for each connection", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		db.SetMaxOpenConns(1)
		ib := newInbox(t, db)
		requireWorks(t, db, ib, "e0")

		before := spy.preparations()
		if before == 0 {
			t.Fatal("nothing was prepared")
		}

		for i := range 10 {
			requireWorks(t, db, ib, fmt.Sprint("e", i+1))
		}

		require.Equal(t, "prepared later", spy.preparations()-before, 0)
	})

	forEachEngine(t, "16 workers on 2 connections get on", func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(2)
		ib, w := newInbox(t, db), newWorker(db)

		for _, id := range []string{"e1", "e2", "e3"} {
			require.OK(t, deliverTogether(16, ib, w.handle, id))
		}

		db.RequireOnce(t, "e1", "e2", "e3")
		requireIdle(t, db)
	})
}
