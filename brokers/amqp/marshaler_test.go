package amqp

import (
	"errors"
	"maps"
	"testing"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

func unmarshal(t *testing.T, m Marshaler, delivery amqp.Delivery) *message.Message {
	t.Helper()

	msg, err := m.Unmarshal(delivery)
	if err != nil {
		t.Fatal(err)
	}

	return msg
}

func requireMetadata(t *testing.T, msg *message.Message, want message.Metadata) {
	t.Helper()

	if !maps.Equal(msg.Metadata, want) {
		t.Fatalf("metadata:\n got %q\nwant %q", msg.Metadata, want)
	}
}

// Report: watermill 184, 192, 265.
func TestUnmarshal_finds_the_UUID(t *testing.T) {
	t.Parallel()

	const header = wmamqp.DefaultMessageUUIDHeaderKey

	for name, c := range map[string]struct {
		marshaler Marshaler
		delivery  amqp.Delivery
		want      string
	}{
		"message-id when the header is missing": {
			delivery: amqp.Delivery{MessageId: "m-1", Headers: amqp.Table{"a": "b"}},
			want:     "m-1",
		},
		"message-id when there are no headers": {
			delivery: amqp.Delivery{MessageId: "m-1"},
			want:     "m-1",
		},
		"message-id when the header is empty": {
			delivery: amqp.Delivery{MessageId: "m-1", Headers: amqp.Table{header: ""}},
			want:     "m-1",
		},
		"message-id when the header is void": {
			delivery: amqp.Delivery{MessageId: "m-1", Headers: amqp.Table{header: nil}},
			want:     "m-1",
		},
		"the header before message-id": {
			delivery: amqp.Delivery{MessageId: "m-1", Headers: amqp.Table{header: "h-1"}},
			want:     "h-1",
		},
		"a header that is a number": {
			delivery: amqp.Delivery{Headers: amqp.Table{header: int64(17)}},
			want:     "17",
		},
		"a header of another name": {
			marshaler: Marshaler{wmamqp.DefaultMarshaler{MessageUUIDHeaderKey: "id"}},
			delivery:  amqp.Delivery{MessageId: "m-1", Headers: amqp.Table{"id": "h-1", header: "h-2"}},
			want:      "h-1",
		},
		"nothing stays nothing": {
			delivery: amqp.Delivery{Body: []byte("x")},
			want:     "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			msg := unmarshal(t, c.marshaler, c.delivery)
			if msg.UUID != c.want || MessageID(msg) != c.want {
				t.Fatalf("got UUID %q and MessageID %q, want %q", msg.UUID, MessageID(msg), c.want)
			}
		})
	}
}

func TestUnmarshal_puts_properties_of_a_foreign_message_into_metadata(t *testing.T) {
	t.Parallel()

	at := time.Date(2024, 2, 29, 13, 0, 1, 0, time.FixedZone("", 3600))
	delivery := amqp.Delivery{
		Body:            []byte("payload"),
		Headers:         amqp.Table{"tenant": "acme"},
		MessageId:       "m-1",
		Exchange:        "orders",
		RoutingKey:      "orders.eu",
		ContentType:     "application/json",
		ContentEncoding: "gzip",
		Type:            "order.paid",
		AppId:           "shop",
		UserId:          "guest",
		CorrelationId:   "c-1",
		ReplyTo:         "answers",
		Timestamp:       at,
	}
	want := message.Metadata{
		"tenant":                "acme",
		MetadataMessageID:       "m-1",
		MetadataExchange:        "orders",
		MetadataRoutingKey:      "orders.eu",
		MetadataContentType:     "application/json",
		MetadataContentEncoding: "gzip",
		MetadataType:            "order.paid",
		MetadataAppID:           "shop",
		MetadataUserID:          "guest",
		MetadataCorrelationID:   "c-1",
		MetadataReplyTo:         "answers",
		MetadataTimestamp:       "2024-02-29T12:00:01Z",
	}

	msg := unmarshal(t, Marshaler{}, delivery)
	requireMetadata(t, msg, want)

	if string(msg.Payload) != "payload" {
		t.Fatalf("payload: %q", msg.Payload)
	}

	delivery.Headers = amqp.Table{MetadataType: "the producer's", MetadataAppID: ""}
	delete(want, "tenant")

	want[MetadataType], want[MetadataAppID] = "the producer's", ""

	requireMetadata(t, unmarshal(t, Marshaler{}, delivery), want)
}

func TestUnmarshal_renames_CC_unless_it_is_text(t *testing.T) {
	t.Parallel()

	msg := unmarshal(t, Marshaler{}, amqp.Delivery{Headers: amqp.Table{"CC": []any{"a", "b"}}})
	requireMetadata(t, msg, message.Metadata{MetadataCC: `["a","b"]`})

	msg = unmarshal(t, Marshaler{}, amqp.Delivery{Headers: amqp.Table{"CC": "a"}})
	requireMetadata(t, msg, message.Metadata{"CC": "a"})
}

func TestUnmarshal_takes_no_message_from_a_closed_channel(t *testing.T) {
	t.Parallel()

	closed := make(chan amqp.Delivery)
	close(closed)

	msg, err := Marshaler{}.Unmarshal(<-closed)
	if !errors.Is(err, ErrNoDelivery) || msg != nil {
		t.Fatalf("got %v, %v", msg, err)
	}
}

func TestUnmarshal_leaves_the_delivery_and_the_metadata_usable(t *testing.T) {
	t.Parallel()

	msg := unmarshal(t, Marshaler{}, amqp.Delivery{DeliveryTag: 1})
	msg.Metadata.Set(wmamqp.MetadataRedeliveredKey, "true") // as the subscriber does; a nil map would panic

	m := Marshaler{wmamqp.DefaultMarshaler{PreprocessDelivery: func(d amqp.Delivery) amqp.Delivery {
		d.Headers = amqp.Table{"seen": d.Headers["x"]}

		return d
	}}}

	delivery := amqp.Delivery{Headers: amqp.Table{"x": int32(1), wmamqp.DefaultMessageUUIDHeaderKey: "u"}}
	msg = unmarshal(t, m, delivery)
	requireMetadata(t, msg, message.Metadata{"seen": "1"})

	if msg.UUID != "u" || len(delivery.Headers) != 2 {
		t.Fatalf("UUID %q, headers %v", msg.UUID, delivery.Headers)
	}
}

func FuzzWatermills_own_messages_pass_unchanged(f *testing.F) {
	f.Add("", "", "", []byte(nil))
	f.Add("0193a1c0-0000-7000-8000-000000000001", "key", "value", []byte("payload"))
	f.Add("id", MetadataExchange, "\x00\xff\r\n", []byte{0})
	f.Add("\xff\x00", "x-death", `[{"count":1}]`, []byte("{}"))

	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		own := message.NewMessage(uuid, payload)
		own.Metadata.Set("event_id", "e")

		if key != wmamqp.DefaultMessageUUIDHeaderKey {
			own.Metadata.Set(key, value)
		}

		publishing, err := Marshaler{}.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}

		delivery := amqp.Delivery{
			Headers:   publishing.Headers,
			Body:      publishing.Body,
			MessageId: publishing.MessageId,
			Exchange:  "orders",
		}

		got := unmarshal(t, Marshaler{}, delivery)

		if uuid == "" { // not to be told from a foreign message
			delete(got.Metadata, MetadataExchange)
			delete(own.Metadata, MetadataExchange)
		}

		if !got.Equals(own) {
			t.Fatalf("got %q %q %q", got.UUID, got.Metadata, got.Payload)
		}
	})
}
