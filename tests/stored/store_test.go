package stored_test

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// sendTogether has messages in flight at once: while the storing of a first event is held up, they gather behind it. The
// process needs as many subscriptions to its broker as there are messages.
func sendTogether(t testing.TB, db *testdb.DB, p *process, messages ...*message.Message) (first *message.Message) {
	t.Helper()

	awaitHeld, release := holdStores(t, db)
	first = delivery("first")
	before := int(p.broker.taken.Load())

	p.broker.send(t, orders, first)
	awaitHeld()
	p.broker.send(t, orders, messages...)
	p.broker.awaitTaken(t, before+1+len(messages))

	for _, msg := range append(messages, first) {
		if isAnswered(msg) {
			t.Errorf("message %q is answered before the transaction is committed", msg.UUID)
		}
	}

	release()
	requireAcked(t, first)

	return first
}

func TestStore(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "messages in flight together become one transaction", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithIngest(30), inbox.WithConcurrency(40))
		messages := deliveries(numbered("e", 30)...)

		sendTogether(t, db, p, messages...)
		requireAcked(t, messages...)
		requireRecorded(t, db, 31)

		transaction := "xmin::text"
		if db.Engine.Dialect == inbox.SQLite {
			transaction = "received_at"
		}

		// The first and then the rest, unless a goroutine with a message in its hand was not scheduled for that long.
		if n := db.Int(t, "SELECT count(DISTINCT "+transaction+") FROM "+db.Table("inbox")); n > 4 {
			t.Errorf("%d transactions for 31 messages", n)
		}
	})

	forEachEngine(t, "of one transaction leave each message its own bytes", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithIngest(30), inbox.WithConcurrency(5))
		p.store(t, "e7")

		messages := append(deliveries(numbered("e", 20)...), deliveries("e3", "e9")...) // three of them duplicates
		payloads := map[string]string{"first": "payload of first", "e7": "payload of e7"}

		for i, msg := range messages[:20] {
			msg.Payload = []byte(strings.Repeat(msg.UUID, i)) // the first has none
			if msg.UUID != "e7" {
				payloads[msg.UUID] = string(msg.Payload)
			}
		}

		messages[20].Payload, messages[21].Payload = messages[2].Payload, messages[8].Payload
		sendTogether(t, db, p, messages...)
		requireAcked(t, messages...)
		p.close(t) // so that nothing of it is in memory

		heir, got := startBacklog(t, another(t, db).New(t), inbox.WithConcurrency(len(payloads))), make(map[string]string)
		for range payloads {
			msg := heir.next(t)
			got[msg.UUID] = string(msg.Payload)
		}

		require.Equal(t, "payloads", got, payloads)
	})

	forEachEngine(t, "no message is acked before the commit", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		sent := deliveries("e1")

		sendTogether(t, db, p, sent...) // which looks
		requireAcked(t, sent...)
	})

	forEachEngine(t, "a stored event is on record as not processed until its message is acked", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")

		msg := p.next(t)
		require.Equal(t, "processed", isProcessed(t, db, "e1"), false)
		require.Equal(t, "attempts", stored(t, db, "e1").attempts, 1)

		msg.Ack()
		awaitFinished(t, db, "e1")
	})

	forEachEngine(t, "an ack of the broker's message does not end the message that is handed out", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		sent := delivery("e1")
		p.broker.send(t, orders, sent)
		requireAcked(t, sent)

		msg := p.next(t)
		require.Equal(t, "answered", isAnswered(msg), false)
		require.OK(t, msg.Context().Err())
		require.Equal(t, "payload", string(msg.Payload), "payload of e1")
	})

	forEachEngine(t, "the row says who is to handle what", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		msg := delivery("e1")
		msg.Metadata = message.Metadata{"event_source": "shop", "event_type": "OrderPlaced"}

		p.broker.send(t, orders, msg)
		requireAcked(t, msg)
		require.Equal(t, "matching rows", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")+` WHERE consumer = 'billing'
			AND source = 'shop' AND event_id = 'e1' AND event_type = 'OrderPlaced'
			AND received_at IS NOT NULL AND processed_at IS NULL`), 1)

		ev, ok := inbox.EventFromContext(p.next(t).Context())
		require.Equal(t, "has an event", ok, true)
		require.Equal(t, "event", ev, inbox.Event{Consumer: billing, Source: "shop", ID: "e1", Type: "OrderPlaced"})
	})
}
