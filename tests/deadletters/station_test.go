package deadletters_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const (
	billing  = "billing" // the consumer
	orders   = "orders"  // its topic
	invoices = "invoices"
)

var errRefused = errors.New("the card was refused")

// station is a service in same-transaction mode, with a Pub/Sub in memory that delivers a nacked message again at once.
type station struct {
	*testdb.DB
	inbox *inbox.Inbox
	told  *tally
	// handle is what the handler does in its n-th run for an event, after it has written its effect. Optional.
	handle func(run int, msg *message.Message) ([]*message.Message, error)
	// outside are middlewares around the inbox.
	outside []message.HandlerMiddleware
	// withoutBacklog leaves requeued messages to their broker.
	withoutBacklog bool

	sub        message.Subscriber // a broker instead of pubSub
	topic      string
	pubSub     *gochannel.GoChannel
	router     *message.Router
	deliveries tallied // to the router, whatever came of them
	runs       tallied
}

func newStation(t testing.TB, db *testdb.DB, opts ...inbox.Option) *station {
	t.Helper()

	s := &station{DB: db, told: &tally{}, topic: orders}
	s.inbox = db.New(t, append([]inbox.Option{inbox.WithHooks(s.told.hooks())}, opts...)...)
	s.pubSub = gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	s.sub = s.pubSub
	t.Cleanup(func() { require.OK(t, s.pubSub.Close()) })

	return s
}

// start runs the service until the test ends. Requeued messages come through a Backlog with the same handler.
func (s *station) start(t testing.TB) *station {
	t.Helper()

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
	require.OK(t, err)

	router.AddMiddleware(s.deliveries.middleware)
	router.AddMiddleware(s.outside...)
	router.AddMiddleware(s.inbox.Middleware)
	router.AddHandler(billing, s.topic, s.sub, invoices, s.pubSub, s.run)

	if !s.withoutBacklog {
		backlog, err := s.inbox.Backlog(billing, inbox.WithBackoff(time.Millisecond, 10*time.Millisecond))
		require.OK(t, err)
		router.AddHandler(billing+"-backlog", s.topic, backlog, invoices, s.pubSub, s.run)
	}

	s.router = router
	running.Run(t, router)

	return s
}

func (s *station) run(msg *message.Message) ([]*message.Message, error) {
	ev, _ := inbox.EventFromContext(msg.Context())
	run := s.runs.add(ev.ID)

	if err := effect(s.DB, msg); err != nil {
		return nil, err
	}

	if s.handle == nil {
		return nil, nil
	}

	return s.handle(run, msg)
}

// effect writes a row named after the event through the inbox's transaction.
func effect(db *testdb.DB, msg *message.Message) error {
	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errors.New("the handler has no transaction")
	}

	ev, _ := inbox.EventFromContext(msg.Context())
	name := strings.Trim(strconv.Quote(ev.ID), `"`)
	_, err := tx.ExecContext(context.WithoutCancel(msg.Context()), "INSERT INTO "+db.Table("effects")+" (event) VALUES ($1)", name)

	return err
}

// failing returns what a handler does that fails in its first n runs for each event.
func failing(n int) func(int, *message.Message) ([]*message.Message, error) {
	return func(run int, _ *message.Message) ([]*message.Message, error) {
		if run <= n {
			return nil, errRefused
		}

		return nil, nil
	}
}

const always = 1 << 30

func newOrder(id string) *message.Message {
	return message.NewMessage(id, message.Payload("order "+id))
}

// deliver returns when the message was acked, after however many deliveries.
func (s *station) deliver(t testing.TB, msg *message.Message) {
	t.Helper()
	running.Publish(t, s.pubSub, orders, msg)
}

// deliverOnce hands a message to the middleware as a router does it for the consumer, and returns its answer.
func (s *station) deliverOnce(id string) error {
	_, err := s.inbox.Middleware(s.run)(newOrder(id))

	return err
}

// outsideOfRouters makes deliverOnce the consumer's.
func outsideOfRouters() inbox.Option {
	return inbox.WithConsumer(func(*message.Message) string { return billing })
}

// requireDead fails unless these events, in the order of their death, are the dead letters, and returns them.
func (s *station) requireDead(t testing.TB, ids ...string) []inbox.Entry {
	t.Helper()

	entries, err := s.inbox.Dead(t.Context(), 100)
	require.OK(t, err)

	var got []string
	for _, e := range entries {
		got = append(got, e.Event.ID)
	}

	require.Equal(t, "dead letters", got, ids)

	return entries
}

// awaitDead waits for an event to be dead.
func (s *station) awaitDead(t testing.TB, id string) (letter inbox.Entry) {
	t.Helper()
	require.Eventually(t, id+" is dead", func() bool {
		entries, err := s.inbox.Dead(t.Context(), 100)
		require.OK(t, err)

		for _, e := range entries {
			if e.Event.ID == id {
				letter = e

				return true
			}
		}

		return false
	})

	return letter
}

func (s *station) requireRows(t testing.TB, table string, want int) {
	t.Helper()
	require.Equal(t, "rows in "+table, s.rows(t, table), want)
}

func (s *station) rows(t testing.TB, table string) int {
	t.Helper()

	return s.Int(t, "SELECT count(*) FROM "+s.Table(table))
}

const (
	failures = "inbox_failures"
	payloads = "inbox_payloads"
)

// tallied counts by name.
type tallied struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *tallied) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.counts == nil {
		c.counts = make(map[string]int)
	}

	c.counts[name]++

	return c.counts[name]
}

func (c *tallied) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.counts[name]
}

func (c *tallied) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		c.add(msg.UUID)

		return h(msg)
	}
}

// tally counts, event by event, what the hooks told, and keeps the error of the last death.
type tally struct {
	processed, duplicate, failed, dead tallied

	mu  sync.Mutex
	err error
}

func (y *tally) hooks() inbox.Hooks {
	return inbox.Hooks{
		Processed: func(_ context.Context, ev inbox.Event) { y.processed.add(ev.ID) },
		Duplicate: func(_ context.Context, ev inbox.Event) { y.duplicate.add(ev.ID) },
		Failed:    func(_ context.Context, ev inbox.Event, _ error) { y.failed.add(ev.ID) },
		Dead: func(_ context.Context, ev inbox.Event, err error) {
			y.mu.Lock()
			y.err = err
			y.mu.Unlock()
			y.dead.add(ev.ID)
		},
	}
}

func (y *tally) causeOfDeath() error {
	y.mu.Lock()
	defer y.mu.Unlock()

	return y.err
}
