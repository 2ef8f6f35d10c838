package nats

import (
	"testing"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
)

func TestEventID_prefers_what_the_producer_sent(t *testing.T) {
	t.Parallel()

	// In the order in which the inbox takes them by default.
	keys := []string{
		"event_id", "ce_id", "ce-id", "Ce-Id", "cloudEvents_id", "cloudEvents:id",
		wmnats.WatermillUUIDHdr, nats.MsgIdHdr,
	}

	for i, first := range keys {
		header := make(nats.Header)
		for _, key := range keys[i:] {
			header.Set(key, "id of "+key)
		}

		if got := EventID(unmarshal(t, received(replyV1, header))); got != "id of "+first {
			t.Errorf("%s: got %q", first, got)
		}
	}

	if got := EventID(unmarshal(t, received(replyV1, nil))); got != "ORDERS/42" {
		t.Errorf("without any: got %q", got)
	}
}

func TestEventIDs_that_believe_one_thing_only(t *testing.T) {
	t.Parallel()

	msg := unmarshal(t, received(replyV1, nats.Header{"event_id": {"e"}, "Ce-Id": {"c"}, nats.MsgIdHdr: {"m-1"}}))

	if got := MessageID(msg); got != "m-1" {
		t.Errorf("MessageID: %q", got)
	}

	if got := Coordinates(msg); got != "ORDERS/42" {
		t.Errorf("Coordinates: %q", got)
	}
}

func TestEventID_of_a_message_that_is_not_from_NATS_is_empty(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("", nil)
	msg.Metadata = nil

	if EventID(msg) != "" || MessageID(msg) != "" || Coordinates(msg) != "" {
		t.Fatal("made something up")
	}
}
