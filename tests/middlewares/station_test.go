package middlewares_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const (
	orders   = "orders"
	receipts = "receipts"
	poison   = "poison"
)

// station is a router over a database, with a Pub/Sub in memory that sends a nacked message again at once.
type station struct {
	*message.Router
	db     *testdb.DB
	pubsub *gochannel.GoChannel
}

func newStation(t testing.TB) *station {
	t.Helper()

	db := testdb.Open(t, testdb.PQ)
	db.EffectsTable(t)

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
	require.OK(t, err)

	return &station{router, db, newPubSub(t)}
}

// newPubSub returns one whose Publish returns when every subscriber has acked.
func newPubSub(t testing.TB) *gochannel.GoChannel {
	t.Helper()

	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	t.Cleanup(func() { require.OK(t, pubsub.Close()) })

	return pubsub
}

// start runs the router with one handler, behind middlewares from the outermost to the innermost.
func (s *station) start(t testing.TB, w *worker, middlewares ...message.HandlerMiddleware) {
	t.Helper()

	handler := s.AddConsumerHandler("billing", orders, s.pubsub, func(msg *message.Message) error {
		_, err := w.handle(msg)

		return err
	})
	handler.AddMiddleware(middlewares...)
	s.run(t)
}

// startPublishing is start for a handler whose outputs are published.
func (s *station) startPublishing(
	t testing.TB, pub message.Publisher, w *worker, middlewares ...message.HandlerMiddleware,
) {
	t.Helper()

	handler := s.AddHandler("billing", orders, s.pubsub, receipts, pub, w.handle)
	handler.AddMiddleware(middlewares...)
	s.run(t)
}

func (s *station) run(t testing.TB) {
	t.Helper()
	running.Run(t, s.Router)
}

// publish returns when the order was acked, after however many deliveries.
func (s *station) publish(t testing.TB, msg *message.Message) {
	t.Helper()
	running.Publish(t, s.pubsub, orders, msg)
}

func newOrder(id string) *message.Message {
	return message.NewMessage(id, message.Payload("order "+id))
}

// requireNothing fails unless the database is as if no event had come.
func (s *station) requireNothing(t testing.TB) {
	t.Helper()
	s.db.RequireOnce(t)
	s.requireRecorded(t, 0)
}

func (s *station) requireRecorded(t testing.TB, want int) {
	t.Helper()
	require.Equal(t, "recorded events", s.db.Int(t, "SELECT count(*) FROM "+s.db.Table("inbox")), want)
}

// openTransactions counts connections in use.
func (s *station) openTransactions() int { return s.db.Stats().InUse }

// log is a middleware that keeps what came back through it, delivery by delivery.
type log struct {
	mu       sync.Mutex
	errs     []error
	messages []*message.Message
}

func (l *log) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outputs, err := h(msg)

		l.mu.Lock()
		defer l.mu.Unlock()

		l.errs = append(l.errs, err)
		l.messages = append(l.messages, msg)

		return outputs, err
	}
}

func (l *log) deliveries() []error {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Clone(l.errs)
}

// effect writes a row named after the event through the inbox's transaction.
func effect(db *testdb.DB, msg *message.Message) error {
	return exec(msg, "INSERT INTO "+db.Table("effects")+" (event) VALUES ($1)", msg.UUID)
}

func exec(msg *message.Message, query string, args ...any) error {
	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errNoTransaction
	}

	_, err := tx.ExecContext(msg.Context(), query, args...)

	return err
}
