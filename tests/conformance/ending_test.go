package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A handler that ends the inbox's transaction itself breaks the rules, but neither loses an event nor doubles one.

// endings are the ways to do it. write writes the effect again, for transactions that go on.
var endings = map[string]struct {
	engines []testdb.Engine
	end     func(tx *sql.Tx, write func() error) error
}{
	"Commit":       {testdb.All, func(tx *sql.Tx, _ func() error) error { return tx.Commit() }},
	"Rollback":     {testdb.All, func(tx *sql.Tx, _ func() error) error { return tx.Rollback() }},
	"COMMIT":       {testdb.All, func(tx *sql.Tx, _ func() error) error { return execAll(tx, "COMMIT") }},
	"ROLLBACK":     {testdb.All, func(tx *sql.Tx, _ func() error) error { return execAll(tx, "ROLLBACK") }},
	"COMMIT BEGIN": {testdb.All, func(tx *sql.Tx, _ func() error) error { return execAll(tx, "COMMIT", "BEGIN") }},
	// PostgreSQL would need one more round trip for each event to tell, see inbox.TxFromContext.
	"ROLLBACK BEGIN": {sqliteOnly, func(tx *sql.Tx, _ func() error) error { return execAll(tx, "ROLLBACK", "BEGIN") }},
	"ROLLBACK BEGIN rewrite": {sqliteOnly, func(tx *sql.Tx, write func() error) error {
		return errors.Join(execAll(tx, "ROLLBACK", "BEGIN"), write())
	}},
}

var sqliteOnly = []testdb.Engine{testdb.SQLite}

func execAll(tx *sql.Tx, queries ...string) error {
	for _, query := range queries {
		if _, err := tx.ExecContext(context.Background(), query); err != nil {
			return err
		}
	}

	return nil
}

// after is what the handler does once it has ended the transaction.
var after = map[string]func() ([]*message.Message, error){
	"nil":     func() ([]*message.Message, error) { return nil, nil },
	"outputs": func() ([]*message.Message, error) { return message.Messages{delivery("o1")}, nil },
	"error":   func() ([]*message.Message, error) { return nil, errors.New("failed") },
	"panic":   func() ([]*message.Message, error) { panic("oops") },
	"ErrSkip": func() ([]*message.Message, error) { return nil, inbox.ErrSkip },
}

func TestHandlerEndsTheTransaction(t *testing.T) {
	t.Parallel()

	for name, ending := range endings {
		for outcome, leave := range after {
			testdb.ForEach(t, ending.engines, "with "+name+" then "+outcome, func(t *testing.T, db *testdb.DB) {
				testEnding(t, db, ending.end, leave, outcome == "ErrSkip")
			})
		}
	}
}

func testEnding(t *testing.T, db *testdb.DB, end func(*sql.Tx, func() error) error,
	leave func() ([]*message.Message, error), skips bool,
) {
	t.Helper()

	w := newWorker(db)
	w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
		if run > 1 {
			return nil, nil
		}

		tx, _ := inbox.TxFromContext(msg.Context())
		require.OK(t, end(tx, func() error { return effect(db, msg.Context()) }))

		return leave()
	}

	ib := newInbox(t, db)
	deliverUntilAcked := func() {
		for range 3 {
			err := errors.New("panicked")
			recovered(func() { _, err = deliver(ib, w.handle, delivery("e1")) })

			if err == nil {
				return
			}
		}

		t.Fatal("the event is not acked after three deliveries")
	}

	deliverUntilAcked()

	if !skips { // ErrSkip acks without effect unless the handler committed it
		db.RequireOnce(t, "e1")
	}

	deliverUntilAcked()
	db.RequireOnce(t, "e1")
	requireRecorded(t, db, 1)
	requireIdle(t, db)
}
