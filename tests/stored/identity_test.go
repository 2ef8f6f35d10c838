package stored_test

import (
	"fmt"
	"maps"
	"strings"
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

func TestIdentity(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "functions see in a message to be stored what the router tells the middleware", func(t *testing.T, db *testdb.DB) {
		told := func(part string) func(*message.Message) string {
			return func(msg *message.Message) string {
				return fmt.Sprintf("%s of %s on %s for %s", part, msg.UUID,
					message.SubscribeTopicFromCtx(msg.Context()), message.HandlerNameFromCtx(msg.Context()))
			}
		}
		opts := []inbox.Option{
			inbox.WithEventID(told("id")), inbox.WithSource(told("source")), inbox.WithEventType(told("type")),
			inbox.WithEventTime(func(msg *message.Message) (time.Time, bool) {
				return time.UnixMilli(int64(len(told("")(msg)))).UTC(), true
			}),
		}

		p := start(t, db.New(t, opts...))
		p.store(t, "e1")

		msg := p.next(t)
		inStore, _ := inbox.EventFromContext(msg.Context())
		require.Equal(t, "id", inStore.ID, "id of e1 on orders for billing")

		// The same event by way of the middleware, in tables of its own.
		pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		t.Cleanup(func() { require.OK(t, pubsub.Close()) })

		router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
		require.OK(t, err)
		router.AddMiddleware(db.New(t, append(opts, inbox.WithTable(db.Schema+".other"))...).Middleware)

		var inMiddleware inbox.Event

		router.AddConsumerHandler(billing, orders, pubsub, func(msg *message.Message) error {
			inMiddleware, _ = inbox.EventFromContext(msg.Context())

			return nil
		})
		running.Run(t, router)
		running.Publish(t, pubsub, orders, delivery("e1"))

		require.Equal(t, "event", inStore, inMiddleware)
		require.Equal(t, "key", inbox.KeyOf(inStore), inbox.KeyOf(inMiddleware))
	})

	forEachEngine(t, "the consumer is the subscriber's whatever WithConsumer and the router say", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t, inbox.WithConsumer(func(*message.Message) string { return "another" }))
		p := start(t, ib)
		p.store(t, "e1")

		msg := p.next(t)
		_, err := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			ev, _ := inbox.EventFromContext(msg.Context())
			require.Equal(t, "consumer", ev.Consumer, billing)

			return nil, nil
		})(msg)
		require.OK(t, err)
		msg.Ack()
		awaitFinished(t, db, "e1")
		requireRecorded(t, db, 1)
	})

	forEachEngine(t, "an event keeps its identity when the functions have changed since it was stored", func(t *testing.T, db *testdb.DB) {
		before := start(t, db.New(t))
		before.store(t, "e1")
		before.close(t)

		ib := another(t, db).New(t, inbox.WithEventID(func(*message.Message) string { return "changed" }))
		after := startBacklog(t, ib)

		msg := after.next(t)
		_, err := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			return nil, write(db, msg, nil)
		})(msg)
		require.OK(t, err)
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
		requireRecorded(t, db, 1)
	})
}

func TestStoredBytes(t *testing.T) {
	t.Parallel()

	odd := []*message.Message{
		{UUID: "plain", Metadata: message.Metadata{"a": "1", "b": "2"}, Payload: []byte(`{"n":1}`)},
		{UUID: "nul\x00", Metadata: message.Metadata{"k\x00": "v\x00v", "": "empty key", "empty value": ""}, Payload: []byte("a\x00b")},
		{UUID: "invalid \xff\xfe UTF-8", Metadata: message.Metadata{"\xc3\x28": "\xff", "event_type": "\xfe"}, Payload: []byte{0xff, 0x00, 0xc0}},
		{UUID: `quotes " ' \ {} , NULL \x00`, Metadata: message.Metadata{`"`: `{"a",\}`}, Payload: []byte(`\x00,{"`)},
		{UUID: "lines\r\n\t\u2028\u202e", Metadata: message.Metadata{"\n": "\r"}, Payload: []byte("\n")},
		{UUID: "no payload", Metadata: message.Metadata{"event_source": "\x00shop\xff"}},
		{UUID: "no metadata", Payload: []byte("x")},
		{UUID: "", Metadata: message.Metadata{"event_id": "id from \x00 metadata"}, Payload: []byte("no uuid")},
		{UUID: "long " + strings.Repeat("\x00é", 50_000), Metadata: message.Metadata{"a": strings.Repeat("ü", 1<<16)}, Payload: []byte("x")},
		{UUID: "large", Metadata: message.Metadata{}, Payload: []byte(strings.Repeat("\x00\\'\"", 1<<19))},
		{UUID: "case", Payload: []byte("lower")},
		{UUID: "CASE", Payload: []byte("upper")},
		{UUID: "01890a5d-ac96-774b-bcce-b302099a8057", Payload: []byte("timed")},
	}

	forEachEngine(t, "come out of the table as they came from the broker", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		sent := make(map[string]*message.Message)
		events := make(map[string]inbox.Event)

		for _, msg := range odd {
			copied := msg.Copy()
			sent[msg.UUID+string(msg.Payload)] = msg
			p.broker.send(t, orders, copied)
			requireAcked(t, copied)
		}

		p.close(t) // so that nothing of it is in memory

		another := startBacklog(t, another(t, db).New(t), inbox.WithConcurrency(len(odd)))

		for range odd {
			got := another.next(t)
			want := sent[got.UUID+string(got.Payload)]

			if want == nil {
				t.Fatalf("got message %.60q, which nobody sent", got.UUID)
			}

			if !maps.Equal(got.Metadata, want.Metadata) {
				t.Errorf("metadata of %.60q: got %.200q, want %.200q", got.UUID, got.Metadata, want.Metadata)
			}

			id := want.Metadata.Get("event_id")
			if id == "" {
				id = want.UUID
			}

			ev, _ := inbox.EventFromContext(got.Context())
			events[ev.ID] = ev
			require.Equal(t, "id", ev.ID, id)
			require.Equal(t, "type", ev.Type, want.Metadata.Get("event_type"))
			got.Ack()
		}

		require.Equal(t, "events", len(events), len(odd))
		require.Equal(t, "source", events["no payload"].Source, "\x00shop\xff")
		require.Equal(t, "source", events["plain"].Source, orders)
		require.Equal(t, "time", events["01890a5d-ac96-774b-bcce-b302099a8057"].Time.UnixMilli(), int64(0x01890a5dac96))
		another.close(t)
		require.Equal(t, "messages left", unfinished(t, db), 0)
	})

	forEachEngine(t, "of a topic that no database could hold are handed out to its subscribers", func(t *testing.T, db *testdb.DB) {
		p, topic := start(t, db.New(t)), "odd\x00\xff' topic"
		messages := subscribe(t, p.subscriber, topic)

		sent := delivery("e1")
		p.broker.send(t, topic, sent)
		requireAcked(t, sent)

		msg := nextOf(t, messages)
		ev, _ := inbox.EventFromContext(msg.Context())
		require.Equal(t, "source", ev.Source, topic)
		msg.Nack()

		awaitRelease(t, db, "e1")

		stale, err := p.Stale(t.Context(), 0)
		require.OK(t, err)
		require.Equal(t, "topic", stale[0].Topic, topic)
	})
}
