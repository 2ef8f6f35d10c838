package kafka

import (
	"testing"

	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

func TestEventID_prefers_what_the_producer_sent(t *testing.T) {
	t.Parallel()

	// In the order in which the inbox takes them by default.
	headers := []string{
		"event_id", "1", "ce_id", "2", "ce-id", "3", "Ce-Id", "4", "cloudEvents_id", "5", "cloudEvents:id", "6",
		wmkafka.UUIDHeaderKey, "7",
	}

	for i := 0; i < len(headers); i += 2 {
		if got := EventID(unmarshal(t, record(headers[i:]...))); got != headers[i+1] {
			t.Errorf("%s: got %q, want %q", headers[i], got, headers[i+1])
		}

		empty := append([]string{headers[i], ""}, headers[i+2:]...)

		want := "orders/3/42"
		if i+2 < len(headers) {
			want = headers[i+3]
		}

		if got := EventID(unmarshal(t, record(empty...))); got != want {
			t.Errorf("empty %s: got %q, want %q", headers[i], got, want)
		}
	}
}

func TestCoordinates_tell_records_apart(t *testing.T) {
	t.Parallel()

	seen := make(map[string]bool)

	for _, topic := range []string{"a", "a.1", "a-1", "1"} {
		for _, partition := range []int32{0, 1, 10} {
			for _, offset := range []int64{0, 1, 10, 101} {
				r := record("ce_id", "same", "event_id", "same")
				r.Topic, r.Partition, r.Offset = topic, partition, offset

				id := Coordinates(unmarshal(t, r))
				if id == "" || seen[id] || id != Coordinates(unmarshal(t, r)) {
					t.Fatalf("%s, %d, %d: %q", topic, partition, offset, id)
				}

				seen[id] = true
			}
		}
	}
}

func TestEventID_of_a_message_that_is_not_from_Kafka_is_empty(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("", nil)
	if EventID(msg) != "" || Coordinates(msg) != "" {
		t.Fatal("made something up")
	}

	msg.Metadata = nil
	if EventID(msg) != "" {
		t.Fatal("made something up")
	}
}
