package stored_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const (
	billing = "billing"
	orders  = "orders"
)

// Settings of subscribers in tests that wait for the end of a lease, for renewals that must not come too late on a busy
// machine, for the next attempt, or for none of these.
var (
	shortLease  = inbox.WithLease(300 * time.Millisecond)
	safeLease   = inbox.WithLease(2 * time.Second)
	retryAtOnce = inbox.WithBackoff(time.Millisecond, time.Millisecond)
	retryNever  = inbox.WithBackoff(time.Hour, time.Hour)
)

// process is what one process of a service has: an inbox, and its subscriber on a broker, subscribed to orders.
type process struct {
	*inbox.Inbox
	broker     *broker
	subscriber message.Subscriber
	messages   <-chan *message.Message

	mu     sync.Mutex
	inHand []*message.Message
}

// start subscribes to a broker of its own.
func start(t testing.TB, ib *inbox.Inbox, opts ...inbox.SubscriberOption) *process {
	t.Helper()

	b := newBroker()
	sub, err := ib.Subscriber(billing, b, opts...)
	require.OK(t, err)

	return subscribed(t, &process{Inbox: ib, broker: b, subscriber: sub})
}

// startBacklog has no broker.
func startBacklog(t testing.TB, ib *inbox.Inbox, opts ...inbox.SubscriberOption) *process {
	t.Helper()

	sub, err := ib.Backlog(billing, opts...)
	require.OK(t, err)

	return subscribed(t, &process{Inbox: ib, subscriber: sub})
}

func subscribed(t testing.TB, p *process) *process {
	t.Helper()

	p.messages = subscribe(t, p.subscriber, orders)
	t.Cleanup(func() { p.close(t) })

	return p
}

func subscribe(t testing.TB, sub message.Subscriber, topic string) <-chan *message.Message {
	t.Helper()

	messages, err := sub.Subscribe(context.Background(), topic)
	require.OK(t, err)

	return messages
}

// close nacks what was not answered.
func (p *process) close(t testing.TB) {
	t.Helper()

	p.mu.Lock()
	defer p.mu.Unlock()

	for _, msg := range p.inHand {
		msg.Nack()
	}

	p.inHand = nil

	require.OK(t, closeAsync(t, p.subscriber))
}

func closeAsync(t testing.TB, sub message.Subscriber) error {
	t.Helper()

	closed := make(chan error, 1)

	go func() { closed <- sub.Close() }()

	return require.Await(t, "the subscriber to close", closed)
}

// store returns when the events are stored, one after the other.
func (p *process) store(t testing.TB, ids ...string) {
	t.Helper()

	for _, msg := range deliveries(ids...) {
		p.broker.send(t, orders, msg)
		requireAcked(t, msg)
	}
}

// next returns the message that is handed out next. Unlike a handler it leaves the answer to the test.
func (p *process) next(t testing.TB) *message.Message {
	t.Helper()

	msg := nextOf(t, p.messages)

	p.mu.Lock()
	defer p.mu.Unlock()

	p.inHand = append(p.inHand, msg)

	return msg
}

func nextOf(t testing.TB, messages <-chan *message.Message) *message.Message {
	t.Helper()

	msg := require.Await(t, "a message to be handed out", messages)
	if msg == nil {
		t.Fatal("the subscription has ended")
	}

	return msg
}

// requireHandedOut takes and acks messages one by one and fails unless they are these, in this order.
func (p *process) requireHandedOut(t testing.TB, ids ...string) {
	t.Helper()

	for _, id := range ids {
		msg := p.next(t)
		require.Equal(t, "message handed out", msg.UUID, id)
		msg.Ack()
	}
}

// another opens the same database as another process does.
func another(t testing.TB, db *testdb.DB) *testdb.DB {
	t.Helper()

	pool, err := sql.Open(db.Engine.Driver, db.DSN)
	require.OK(t, err)
	t.Cleanup(func() { pool.Close() })

	return &testdb.DB{DB: pool, Engine: db.Engine, DSN: db.DSN, Schema: db.Schema}
}

// write writes the effect of a message in InTx, and then returns an error or nil.
func write(db *testdb.DB, msg *message.Message, then error) error {
	return inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
		if err := insertEffect(db, tx, msg.UUID); err != nil {
			return err
		}

		return then
	})
}

func insertEffect(db *testdb.DB, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(context.Background(), "INSERT INTO "+db.Table("effects")+" (event) VALUES ($1)", name)

	return err
}

// numbered returns prefix1, prefix2 and so on.
func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", prefix, i+1)
	}

	return ids
}
