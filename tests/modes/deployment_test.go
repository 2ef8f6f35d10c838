package modes_test

import (
	"context"
	"errors"
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

// world is what outlives the deployments of a service: its database, and who gets its invoices.
type world struct {
	*testdb.DB
	invoices  *gochannel.GoChannel
	published func() []*message.Message
	runs      runs
}

func newWorld(t *testing.T, db *testdb.DB) *world {
	t.Helper()

	w := &world{DB: db, invoices: gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})}
	t.Cleanup(func() { require.OK(t, w.invoices.Close()) })
	w.published = running.Collect(t, w.invoices, invoices)

	return w
}

// deployment is a service at work in this process, with a Pub/Sub in memory of its own that delivers again at once what is
// nacked.
type deployment struct {
	*service
	broker *gochannel.GoChannel
	acks   *acks
	router *message.Router

	testEnded chan struct{}
}

// deploy starts a service with the handler byTx. Changes are made before.
func (w *world) deploy(t *testing.T, m mode, changes ...func(s *service)) *deployment {
	t.Helper()

	d := &deployment{broker: gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})}
	d.acks = &acks{Subscriber: d.broker}
	d.testEnded = make(chan struct{})
	t.Cleanup(func() { close(d.testEnded) })
	d.service = &service{
		DB: w.DB, mode: m, sub: d.acks, pub: w.invoices, topic: orders, publishTo: invoices, handlerName: billing,
		handle: byTx(w.DB),
	}

	for _, change := range changes {
		change(d.service)
	}

	d.handle = w.runs.counting(d.handle)

	router, err := d.service.router()
	require.OK(t, err)

	d.router = router
	running.Run(t, router)

	return d
}

// stop closes the router, which cancels the contexts of messages at once. What is in flight is lost to the broker.
func (d *deployment) stop(t *testing.T) {
	t.Helper()
	require.OK(t, d.router.Close())
}

// deliver returns when the events were acked, after however many deliveries.
func (d *deployment) deliver(t *testing.T, ids ...string) {
	t.Helper()
	require.Await(t, "the acks", d.send(t, ids...))
}

// send does not wait for acks. What it returns is closed when all events are acked, or the test ends.
func (d *deployment) send(t *testing.T, ids ...string) (done chan struct{}) {
	t.Helper()

	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = newOrder(id)
	}

	require.OK(t, d.broker.Publish(d.topic, messages...))

	done = make(chan struct{})

	go func() {
		defer close(done)

		for _, msg := range messages {
			select {
			case <-d.acks.of(msg.UUID):
			case <-d.testEnded:
				return
			}
		}
	}()

	return done
}

// handling has the service use another handler.
func handling(h message.HandlerFunc) func(*service) { return func(s *service) { s.handle = h } }

func with(opts ...inbox.Option) func(*service) {
	return func(s *service) { s.options = append(s.options, opts...) }
}

func withSubscriber(opts ...inbox.SubscriberOption) func(*service) {
	return func(s *service) { s.subscriber = append(s.subscriber, opts...) }
}

var errBrokerAway = errors.New("the broker is away")

// notPublishing is a service that dies before it has published anything.
func notPublishing(s *service) { s.pub = brokenPublisher{} }

type brokenPublisher struct{}

func (brokenPublisher) Publish(string, ...*message.Message) error { return errBrokerAway }
func (brokenPublisher) Close() error                              { return nil }

// runs counts calls of handlers by event.
type runs struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *runs) counting(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ev, _ := inbox.EventFromContext(msg.Context())

		r.mu.Lock()
		if r.counts == nil {
			r.counts = make(map[string]int)
		}

		r.counts[ev.ID]++
		r.mu.Unlock()

		return h(msg)
	}
}

func (r *runs) of(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()

	return r.counts[id]
}

// notes returns the note of each event's effect.
func notes(t *testing.T, db *testdb.DB) map[string]string {
	t.Helper()

	rows, err := db.QueryContext(context.Background(), "SELECT event, note FROM "+db.Table("effects"))
	require.OK(t, err)
	defer rows.Close()

	notes := make(map[string]string)

	for rows.Next() {
		var event, note string
		require.OK(t, rows.Scan(&event, &note))
		notes[event] = note
	}

	require.OK(t, rows.Err())

	return notes
}

// requirePublished fails unless each event's invoice was published, under the one UUID that is on record, and nothing else.
func (w *world) requirePublished(t *testing.T, ids ...string) {
	t.Helper()
	require.Eventually(t, "all invoices are published", func() bool { return len(w.uuids(t)) >= len(ids) })

	want := notes(t, w.DB)
	for id, uuids := range w.uuids(t) {
		if !slices.Contains(ids, id) {
			t.Errorf("unexpected invoice for %s", id)
		}

		require.Equal(t, "UUIDs of the invoice for "+id, uuids, []string{want[id]})
	}
}

// uuids returns the different UUIDs of each event's invoice.
func (w *world) uuids(t *testing.T) map[string][]string {
	t.Helper()

	uuids := make(map[string][]string)

	for _, msg := range w.published() {
		id := msg.Metadata.Get("order")
		require.Equal(t, "payload", string(msg.Payload), "invoice for "+id)

		if !slices.Contains(uuids[id], msg.UUID) {
			uuids[id] = append(uuids[id], msg.UUID)
		}
	}

	return uuids
}

// awaitNothingStored waits until the table of stored messages is empty.
func (w *world) awaitNothingStored(t *testing.T) {
	t.Helper()
	require.Eventually(t, "nothing is stored", func() bool { return w.stored(t) == 0 })
}

// drain waits until the backlog is empty, which may have to publish again what was taken over from store-then-process.
func (w *world) drain(t *testing.T, changes ...func(s *service)) {
	t.Helper()
	w.deploy(t, sameTxWithBacklog, changes...)
	w.awaitNothingStored(t)
}

func (w *world) stored(t *testing.T) int {
	t.Helper()

	return w.Int(t, "SELECT count(*) FROM "+w.Table("inbox_payloads"))
}

// stats returns what is to do for the consumer.
func (d *deployment) stats(t *testing.T) (s inbox.ConsumerStats) {
	t.Helper()

	stats, err := d.inbox.Stats(t.Context())
	require.OK(t, err)

	for _, of := range stats.Consumers {
		if of.Consumer == billing {
			s = of
		}
	}

	s.OldestUnprocessed = 0

	return s
}
