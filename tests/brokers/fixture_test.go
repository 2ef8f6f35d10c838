package brokers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// fixture is what a scenario starts from: a database with an inbox, and a route.
type fixture struct {
	route

	db     *testdb.DB
	inbox  *inbox.Inbox
	told   *tally // by the hooks of inbox
	log    watermill.LoggerAdapter
	events []string // published so far
}

func newFixture(t *testing.T, b *broker) *fixture {
	t.Helper()

	db := testdb.Open(t, testdb.PQ)

	return newFixtureOn(t, newRoute(t, b, db), db)
}

func newFixtureOn(t *testing.T, r route, db *testdb.DB) *fixture {
	t.Helper()

	f := &fixture{route: r, db: db, told: newTally(), log: newLog(t)}
	db.SetMaxOpenConns(poolSize)
	db.EffectsTable(t)
	f.inbox = db.New(t, inbox.WithHooks(f.told.hooks()), inbox.WithLogger(f.log))

	return f
}

// poolSize keeps many tests at once within the server's connections, and is less than what gochannel delivers at once.
const poolSize = 6

// consumer returns a service that handles events with record, unless the test changes that.
func (f *fixture) consumer() *consumer {
	return &consumer{
		route: f.route,
		inbox: f.inbox,
		handle: func(msg *message.Message) ([]*message.Message, error) {
			return nil, record(msg, f.db.Table("effects"), "")
		},
		log: f.log,
	}
}

// record is the business of the service: a row for each event.
func record(msg *message.Message, effects, note string) error {
	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errors.New("no transaction in the context")
	}

	_, err := tx.ExecContext(msg.Context(), "INSERT INTO "+effects+" (event, note) VALUES ($1, $2)", string(msg.Payload), note)

	return err
}

// newMessage returns a message as a producer sends it: every sending has a UUID of its own, the event keeps its id. The
// source is set since topics differ from broker to broker.
func newMessage(event string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(event))
	msg.Metadata.Set("event_id", event)
	msg.Metadata.Set("event_source", "shop")

	return msg
}

// newEvents names n events that were not published before.
func (f *fixture) newEvents(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("order-%03d", len(f.events)+i+1)
	}

	f.events = append(f.events, names...)

	return names
}

// publish sends n new events.
func (f *fixture) publish(t *testing.T, n int) {
	t.Helper()
	f.send(t, f.newEvents(n)...)
}

// send sends events, new or not.
func (f *fixture) send(t *testing.T, events ...string) {
	t.Helper()

	pub, err := f.publisher(f.log)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, pub)

	for _, event := range events {
		if err := pub.Publish(f.Topic, newMessage(event)); err != nil {
			t.Fatal(err)
		}
	}
}

// requireOnce fails unless every event that was published has one effect, and there is nothing else.
func (f *fixture) requireOnce(t *testing.T) {
	t.Helper()
	f.db.RequireOnce(t, f.events...)
}

func (f *fixture) awaitEffects(t *testing.T, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d effects", n), func() bool { return len(f.db.Effects(t)) >= n })
}

// patience is for a machine that is busy with much else.
const patience = 2 * time.Minute

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()

	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()

	for deadline := time.After(patience); !holds(); {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// receive waits for something that another goroutine sends.
func receive[T any](t *testing.T, what string, from <-chan T) (value T) {
	t.Helper()

	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}

	return value
}
