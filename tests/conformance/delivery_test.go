package conformance_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const billing = "billing"

func consumer(name string) inbox.Option {
	return inbox.WithConsumer(func(*message.Message) string { return name })
}

// newInbox returns an inbox for a middleware that runs without a router and therefore without a handler name.
func newInbox(t testing.TB, db *testdb.DB, opts ...inbox.Option) *inbox.Inbox {
	t.Helper()

	return db.New(t, append([]inbox.Option{consumer(billing)}, opts...)...)
}

// delivery is what a broker makes of an event: a new message each time, with the same id.
func delivery(id string) *message.Message {
	return message.NewMessage(id, message.Payload("payload of "+id))
}

func deliver(ib *inbox.Inbox, h message.HandlerFunc, msg *message.Message) ([]*message.Message, error) {
	return ib.Middleware(h)(msg)
}

type result struct {
	outputs []*message.Message
	err     error
}

// deliverAsync is for deliveries that have to wait for something.
func deliverAsync(ib *inbox.Inbox, h message.HandlerFunc, msg *message.Message) <-chan result {
	done := make(chan result, 1)

	go func() {
		outputs, err := deliver(ib, h, msg)
		done <- result{outputs, err}
	}()

	return done
}

// effect writes a row named after the event through the inbox's transaction.
func effect(db *testdb.DB, ctx context.Context) error {
	ev, _ := inbox.EventFromContext(ctx)

	return effectNamed(db, ctx, ev.ID)
}

func effectNamed(db *testdb.DB, ctx context.Context, name string) error {
	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return errors.New("the handler has no transaction")
	}

	_, err := tx.ExecContext(context.WithoutCancel(ctx), insertEffect(db), name)

	return err
}

func insertEffect(db *testdb.DB) string {
	return "INSERT INTO " + db.Table("effects") + " (event) VALUES ($1)"
}

// worker is a handler that counts its runs, writes its effect, and then does what the run says.
type worker struct {
	db   *testdb.DB
	then func(run int, msg *message.Message) ([]*message.Message, error)
	runs atomic.Int32
}

func newWorker(db *testdb.DB) *worker { return &worker{db: db} }

// failing returns a worker whose first run ends in an error.
func failing(db *testdb.DB, err error) *worker {
	return &worker{db: db, then: func(run int, _ *message.Message) ([]*message.Message, error) {
		if run == 1 {
			return nil, err
		}

		return nil, nil
	}}
}

func (w *worker) handle(msg *message.Message) ([]*message.Message, error) {
	run := int(w.runs.Add(1))

	if err := effect(w.db, msg.Context()); err != nil {
		return nil, err
	}

	if w.then == nil {
		return nil, nil
	}

	return w.then(run, msg)
}

func (w *worker) requireRuns(t testing.TB, want int) {
	t.Helper()
	require.Equal(t, "runs of the handler", int(w.runs.Load()), want)
}

// requireRecorded fails unless the ledger has this many rows.
func requireRecorded(t testing.TB, db *testdb.DB, want int) {
	t.Helper()
	require.Equal(t, "recorded events", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")), want)
}

func requireStoredOutputs(t testing.TB, db *testdb.DB, want int) {
	t.Helper()
	require.Equal(t, "events with stored outputs", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_outputs")), want)
}

// requireIdle fails when a connection is still in use, as it is by a transaction that was not ended.
func requireIdle(t testing.TB, db *testdb.DB) {
	t.Helper()
	require.Eventually(t, "no connection is in use", func() bool { return db.Stats().InUse == 0 })
}
