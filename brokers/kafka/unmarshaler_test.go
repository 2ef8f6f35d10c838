package kafka

import (
	"errors"
	"math"
	"testing"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

func record(headers ...string) *sarama.ConsumerMessage {
	r := &sarama.ConsumerMessage{Topic: "orders", Partition: 3, Offset: 42, Value: []byte("payload")}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, &sarama.RecordHeader{Key: []byte(headers[i]), Value: []byte(headers[i+1])})
	}

	return r
}

func unmarshal(t *testing.T, r *sarama.ConsumerMessage) *message.Message {
	t.Helper()

	msg, err := Unmarshaler{}.Unmarshal(r)
	if err != nil {
		t.Fatal(err)
	}

	return msg
}

// Report: watermill 184, 192, 265.
func TestUnmarshal(t *testing.T) {
	t.Parallel()

	const header = wmkafka.UUIDHeaderKey

	for name, c := range map[string]struct {
		record   *sarama.ConsumerMessage
		uuid     string
		metadata message.Metadata
	}{
		"foreign record gets its coordinates and no UUID": {
			record:   record(),
			metadata: message.Metadata{MetadataCoordinates: "orders/3/42"},
		},
		"empty UUID is no UUID": {
			record:   record(header, ""),
			metadata: message.Metadata{MetadataCoordinates: "orders/3/42"},
		},
		"Watermill's record gets nothing": {
			record:   record("a", "b", header, "u-1"),
			uuid:     "u-1",
			metadata: message.Metadata{"a": "b"},
		},
		"coordinates of an earlier topic are not believed": {
			record:   record(MetadataCoordinates, "earlier/0/1"),
			metadata: message.Metadata{MetadataCoordinates: "orders/3/42"},
		},
		"nor with a UUID": {
			record:   record(header, "u-1", MetadataCoordinates, "earlier/0/1"),
			uuid:     "u-1",
			metadata: message.Metadata{},
		},
		"binary headers survive": {
			record: record("\x00k\xff", "\x00\xff\r\n", "empty", "", "", "no name"),
			metadata: message.Metadata{
				"\x00k\xff": "\x00\xff\r\n", "empty": "", "": "no name", MetadataCoordinates: "orders/3/42",
			},
		},
		"last of several headers": {
			record:   record("a", "1", "a", "2"),
			metadata: message.Metadata{"a": "2", MetadataCoordinates: "orders/3/42"},
		},
		"missing header": {
			record:   &sarama.ConsumerMessage{Headers: []*sarama.RecordHeader{nil}, Value: []byte("payload")},
			metadata: message.Metadata{MetadataCoordinates: "/0/0"},
		},
		"largest coordinates": {
			record: &sarama.ConsumerMessage{
				Topic: "a.b_c-d", Partition: math.MaxInt32, Offset: math.MaxInt64, Value: []byte("payload"),
			},
			metadata: message.Metadata{MetadataCoordinates: "a.b_c-d/2147483647/9223372036854775807"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			want := message.NewMessage(c.uuid, []byte("payload"))
			want.Metadata = c.metadata

			if got := unmarshal(t, c.record); !got.Equals(want) {
				t.Fatalf("got %q %q %q", got.UUID, got.Metadata, got.Payload)
			}
		})
	}
}

func TestUnmarshal_takes_a_tombstone(t *testing.T) {
	t.Parallel()

	r := record()
	r.Value = nil

	if got := unmarshal(t, r); len(got.Payload) != 0 || Coordinates(got) != "orders/3/42" {
		t.Fatalf("got %q %q", got.Payload, got.Metadata)
	}
}

func TestUnmarshal_takes_no_message_from_nil(t *testing.T) {
	t.Parallel()

	msg, err := Unmarshaler{}.Unmarshal(nil)
	if !errors.Is(err, ErrNoRecord) || msg != nil {
		t.Fatalf("got %v, %v", msg, err)
	}
}

func FuzzWatermills_own_messages_pass_unchanged(f *testing.F) {
	f.Add("0193a1c0-0000-7000-8000-000000000001", "key", "value", []byte("payload"))
	f.Add("\x00", "\xff", "\x00\xff\r\n", []byte{0})
	f.Add("", "", "", []byte(nil))

	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		own := message.NewMessage(uuid, payload)
		own.Metadata.Set("event_id", "e")

		if key != wmkafka.UUIDHeaderKey && key != MetadataCoordinates {
			own.Metadata.Set(key, value)
		}

		sent, err := wmkafka.DefaultMarshaler{}.Marshal("orders", own)
		if err != nil {
			t.Fatal(err)
		}

		r := &sarama.ConsumerMessage{Topic: "orders", Value: payload}
		for i := range sent.Headers {
			r.Headers = append(r.Headers, &sent.Headers[i])
		}

		got := unmarshal(t, r)

		if uuid == "" { // not to be told from a foreign message
			delete(got.Metadata, MetadataCoordinates)
		}

		if !got.Equals(own) {
			t.Fatalf("got %q %q %q", got.UUID, got.Metadata, got.Payload)
		}
	})
}
