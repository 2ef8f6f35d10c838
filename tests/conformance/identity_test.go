package conformance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// identified returns the event that the middleware finds in a message.
func identified(t testing.TB, ib *inbox.Inbox, msg *message.Message) (ev inbox.Event) {
	t.Helper()

	_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
		ev, _ = inbox.EventFromContext(msg.Context())

		return nil, inbox.ErrSkip
	}, msg)
	require.OK(t, err)

	return ev
}

func TestIdentity(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "default chains take the first that is not empty", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)
		chain := func(attribute string) []string {
			keys := []string{"event_" + attribute}
			for _, format := range []string{"ce_%s", "ce-%s", "Ce-%s", "cloudEvents_%s", "cloudEvents:%s"} {
				name := attribute
				if format == "Ce-%s" {
					name = string(attribute[0]-'a'+'A') + attribute[1:]
				}

				keys = append(keys, fmt.Sprintf(format, name))
			}

			return keys
		}
		ids, sources, types := chain("id"), chain("source"), append(chain("type"), "name")

		for _, chain := range [][]string{ids, sources, types} {
			for i := range chain {
				msg := message.NewMessage("uuid", nil)

				for j, key := range chain { // every later one is there as well, every earlier one is empty
					value := ""
					if j >= i {
						value = "from " + key
					}

					msg.Metadata.Set(key, value)
				}

				ev := identified(t, ib, msg)
				want := inbox.Event{Consumer: billing, ID: "uuid"}

				switch &chain[0] {
				case &ids[0]:
					want.ID = "from " + chain[i]
				case &sources[0]:
					want.Source = "from " + chain[i]
				default:
					want.Type = "from " + chain[i]
				}

				require.Equal(t, "event", ev, want)
			}
		}
	})

	forEachEngine(t, "in a router the consumer is the handler and the source the topic", func(t *testing.T, db *testdb.DB) {
		ib, s := db.New(t), newStation(t)

		var got inbox.Event

		s.AddMiddleware(ib.Middleware)
		s.AddConsumerHandler("billing", "orders", s.pubsub, func(msg *message.Message) error {
			got, _ = inbox.EventFromContext(msg.Context())

			return nil
		})
		s.start(t)
		s.publish(t, "orders", delivery("e1"))
		require.Equal(t, "event", got, inbox.Event{Consumer: "billing", Source: "orders", ID: "e1"})
	})

	// watermill 184, 192, 265
	forEachEngine(t, "a message without any id is neither handled nor recorded", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		for range 2 {
			outputs, err := deliver(ib, w.handle, delivery(""))
			require.ErrorIs(t, err, inbox.ErrNoEventID)
			require.Equal(t, "outputs", len(outputs), 0)
		}

		w.requireRuns(t, 0)
		requireRecorded(t, db, 0)
	})

	// watermill 184, 192, 265
	forEachEngine(t, "messages without uuid are told apart by metadata", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		for range 2 {
			for _, id := range []string{"a", "b"} {
				msg := delivery("")
				msg.Metadata.Set("ce-id", id)

				_, err := deliver(ib, w.handle, msg)
				require.OK(t, err)
			}
		}

		db.RequireOnce(t, "a", "b")
	})

	forEachEngine(t, "a message without consumer is neither handled nor recorded", func(t *testing.T, db *testdb.DB) {
		for _, ib := range []*inbox.Inbox{db.New(t), db.New(t, consumer(""))} {
			w := newWorker(db)

			_, err := deliver(ib, w.handle, delivery("e1"))
			require.ErrorIs(t, err, inbox.ErrNoConsumer)
			w.requireRuns(t, 0)
		}

		requireRecorded(t, db, 0)
	})

	from := func(key string) func(*message.Message) string {
		return func(msg *message.Message) string { return msg.Metadata.Get(key) }
	}

	forEachEngine(t, "options replace the chains", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t, inbox.WithEventID(from("a"), from("b")), inbox.WithSource(from("s")),
			inbox.WithEventType(from("t")), inbox.WithConsumer(from("c")))
		msg := func(a, b string) *message.Message {
			return &message.Message{UUID: "uuid", Metadata: message.Metadata{
				"a": a, "b": b, "s": "source", "t": "type", "c": "consumer",
				"event_id": "no", "event_source": "no", "event_type": "no",
			}}
		}

		for _, c := range []struct{ a, b, id string }{{"1", "2", "1"}, {"", "2", "2"}} {
			require.Equal(t, "event", identified(t, ib, msg(c.a, c.b)),
				inbox.Event{Consumer: "consumer", Source: "source", ID: c.id, Type: "type"})
		}

		_, err := deliver(ib, newWorker(db).handle, msg("", ""))
		require.ErrorIs(t, err, inbox.ErrNoEventID)
	})

	const (
		uuidv7 = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F" // RFC 9562, appendix A.6
		ulid   = "01fwhe4ydgfk1sha6kg2e0jsfx"
	)

	stamp := time.UnixMilli(0x017F22E279B0).UTC()

	forEachEngine(t, "time is the id's own, else WithEventTime's", func(t *testing.T, db *testdb.DB) {
		told := time.Date(2020, 1, 2, 3, 4, 5, 6_000_000, time.UTC)
		ib := newInbox(t, db, inbox.WithEventTime(func(msg *message.Message) (time.Time, bool) {
			return told, msg.Metadata.Get("timed") != ""
		}))

		for id, want := range map[string]time.Time{uuidv7: stamp, "order-1": told, "9b2c7c5e-0000-4000-8000-000000000000": told} {
			msg := delivery(id)
			msg.Metadata.Set("timed", "yes")
			require.Equal(t, "time of "+id, identified(t, ib, msg).Time, want)
		}

		require.Equal(t, "untimed", identified(t, ib, delivery("order-1")).Time.IsZero(), true)
		require.Equal(t, "ULID is timed", identified(t, ib, delivery(ulid)).Time.IsZero(), false)
	})

	forEachEngine(t, "the stored key is KeyOf the event", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)

		for _, id := range []string{uuidv7, ulid, "order-1", newUUID()} {
			ev := identified(t, ib, delivery(id))

			_, err := deliver(ib, newWorker(db).handle, delivery(id))
			require.OK(t, err)

			var arg any = inbox.KeyOf(ev).String()
			if db.Engine.Dialect == inbox.SQLite {
				key := inbox.KeyOf(ev)
				arg = key[:]
			}

			require.Equal(t, "rows with the key of "+id,
				db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")+" WHERE key = $1 AND event_id = '"+id+"'", arg), 1)
		}
	})

	forEachEngine(t, "WithEventTime is part of the key to the millisecond", func(t *testing.T, db *testdb.DB) {
		w := newWorker(db)
		at := func(when time.Time) *inbox.Inbox {
			return newInbox(t, db, inbox.WithEventTime(func(*message.Message) (time.Time, bool) { return when, true }))
		}

		for _, when := range []time.Time{stamp, stamp.Add(time.Microsecond), stamp.Local(), stamp.Add(time.Millisecond)} {
			_, err := deliver(at(when), w.handle, delivery("order-1"))
			require.OK(t, err)
		}

		w.requireRuns(t, 2)
	})
}
