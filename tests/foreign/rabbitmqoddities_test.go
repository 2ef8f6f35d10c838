package foreign_test

import (
	"math"
	"testing"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/watermill-inbox/inbox/brokers/amqp"
)

// Report: watermill-amqp 23.
func TestForeign_headers_of_every_type_come_through_RabbitMQ_as_text(t *testing.T) {
	t.Parallel()

	on := openRabbitMQ(t)
	s := newService(t, nil)
	at := time.Date(2024, 2, 29, 13, 0, 1, 0, time.UTC)

	publishAMQP(t, on.name, amqp091.Publishing{
		MessageId:     "m-1",
		ContentType:   "application/json",
		Type:          "order.paid",
		AppId:         "shop",
		CorrelationId: "c-1",
		Timestamp:     at,
		Body:          []byte("a"),
		Headers: amqp091.Table{
			"string": "\x00\xffü", "bytes": []byte("\x00\xff"), "void": nil, "bool": true,
			"byte": uint8(255), "int8": int8(-1), "int16": int16(-2),
			"int32": int32(math.MinInt32), "int64": int64(math.MaxInt64),
			"float": float32(0.5), "double": 1.25, "decimal": amqp091.Decimal{Scale: 2, Value: 12345}, "time": at,
			"array": []any{"x", int32(1), []any{}}, "table": amqp091.Table{"k": amqp091.Table{"b": []byte("c")}},
			// A producer's header of that name wins.
			amqp.MetadataType: "its own",
		},
	})

	s.start(t, on, "billing")

	got := receive(t, "a message", s.seen)
	want := message.NewMessage("m-1", message.Payload("a"))
	want.Metadata = message.Metadata{
		"string": "\x00\xffü", "bytes": "\x00\xff", "void": "", "bool": "true",
		"byte": "255", "int8": "-1", "int16": "-2", "int32": "-2147483648", "int64": "9223372036854775807",
		"float": "0.5", "double": "1.25", "decimal": "123.45", "time": "2024-02-29T13:00:01Z",
		"array": `["x",1,[]]`, "table": `{"k":{"b":"c"}}`,
		amqp.MetadataType:          "its own",
		amqp.MetadataMessageID:     "m-1",
		amqp.MetadataRoutingKey:    on.name,
		amqp.MetadataContentType:   "application/json",
		amqp.MetadataAppID:         "shop",
		amqp.MetadataCorrelationID: "c-1",
		amqp.MetadataTimestamp:     "2024-02-29T13:00:01Z",
	}

	if !got.msg.Equals(want) {
		t.Errorf("got %q %q %q", got.msg.UUID, got.msg.Metadata, got.msg.Payload)
	}

	s.await(t, 1, 0)
	s.db.RequireOnce(t, "a")
}

// Ids that are not text are ids all the same.
func TestForeign_ids_that_are_numbers_tell_messages_of_RabbitMQ_apart(t *testing.T) {
	t.Parallel()

	on := openRabbitMQ(t)
	s := newService(t, nil)

	for body, headers := range map[string]amqp091.Table{
		"a": {"event_id": int64(1)},
		"b": {"event_id": int64(2)},
		"c": {wmamqp.DefaultMessageUUIDHeaderKey: int32(3)},
		"d": {wmamqp.DefaultMessageUUIDHeaderKey: amqp091.Table{"k": int32(4)}},
	} {
		publishAMQP(t, on.name, amqp091.Publishing{Headers: headers, Body: []byte(body)})
		publishAMQP(t, on.name, amqp091.Publishing{Headers: headers, Body: []byte(body)})
	}

	s.start(t, on, "billing")
	s.await(t, 4, 4)
	s.db.RequireOnce(t, "a", "b", "c", "d")
}

// RabbitMQ refuses a CC that is text, and the channel with it.
func TestForeign_message_that_names_more_queues_can_be_passed_on(t *testing.T) {
	t.Parallel()

	first, second, third := openRabbitMQ(t), openRabbitMQ(t), openRabbitMQ(t)
	s := newService(t, nil)

	publishAMQP(t, first.name, amqp091.Publishing{
		MessageId: "m-1",
		Headers:   amqp091.Table{"CC": []any{second.name}},
		Body:      []byte("a"),
	})
	s.start(t, second, "billing")

	got := receive(t, "a copy", s.seen).msg
	if cc := got.Metadata.Get(amqp.MetadataCC); cc != `["`+second.name+`"]` {
		t.Errorf("CC %q", cc)
	}

	pub, err := third.publisher(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, pub)

	if err := pub.Publish(third.name, got); err != nil {
		t.Fatal(err)
	}

	next := newService(t, nil)
	next.start(t, third, "billing")

	if again := receive(t, "what was passed on", next.seen).msg; !again.Equals(got) {
		t.Errorf("got %q %q", again.UUID, again.Metadata)
	}
}

// When a queue is deleted, Watermill's subscriber reads empty deliveries from the closed channel until it reconnects.
func TestForeign_queue_that_is_deleted_yields_no_messages_that_never_were(t *testing.T) {
	t.Parallel()

	on := openRabbitMQ(t)

	entered := make(chan string, 100)
	watch := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			entered <- string(msg.Payload)

			return h(msg)
		}
	}

	s := newService(t, nil)
	s.start(t, on, "billing", watch)

	on.send(t, foreign{body: "a", id: "m-1"})
	s.await(t, 1, 0)

	consumers := func() (n int) {
		withChannel(t, func(ch *amqp091.Channel) {
			if queue, err := ch.QueueDeclarePassive(on.name, true, false, false, false, nil); err == nil {
				n = queue.Consumers
			}
		})

		return n
	}

	withChannel(t, func(ch *amqp091.Channel) {
		if _, err := ch.QueueDelete(on.name, false, false, false); err != nil {
			t.Fatal(err)
		}
	})

	await(t, "the subscriber to come back", func() bool { return consumers() == 1 })
	on.send(t, foreign{body: "b", id: "m-2"})
	s.await(t, 2, 0)
	s.db.RequireOnce(t, "a", "b")

	for _, want := range []string{"a", "b"} {
		if got := receive(t, "a message", entered); got != want {
			t.Fatalf("message %q, want %q", got, want)
		}
	}
}
