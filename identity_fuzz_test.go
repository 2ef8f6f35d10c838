package inbox_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// FuzzIdentity holds two messages of any bytes against each other: identity never panics, is refused only for being
// empty, and two of them have one key only if they are the same.
func FuzzIdentity(f *testing.F) {
	f.Add("billing", "orders", "9b2d8a0e-4c1f-4d6a-8e0b-2f6a5c7d9e10", "", "billing", "orders", "")
	f.Add("a", "bc", "d", "type", "ab", "c", "d")
	f.Add("c", "", "019adb40-0c00-7abc-8def-0123456789ab", "", "c", "", "019ADB40-0C00-7ABC-8DEF-0123456789AB")
	f.Add("c", "s", "01KBDM0300F9Y3QXJ5W8N2T7ZR", "", "c", "s", "01kbdm0300f9y3qxj5w8n2t7zr")
	f.Add("c\x00", "s\xff", "\x00", "\xf0\x9f", "c", "s", strings.Repeat("x", 5000))

	f.Fuzz(func(t *testing.T, consumer, source, id, eventType, consumer2, source2, id2 string) {
		first := identify(t, consumer, source, id, eventType)
		second := identify(t, consumer2, source2, id2, "")

		if first == nil || second == nil {
			return
		}

		same := consumer == consumer2 && source == source2 && id == id2
		if (inbox.KeyOf(*first) == inbox.KeyOf(*second)) != same {
			t.Errorf("keys of %q and %q: same is not %t", *first, *second, same)
		}
	})
}

// identify returns nil when the event was rightly refused.
func identify(t *testing.T, consumer, source, id, eventType string) *inbox.Event {
	t.Helper()

	msg := message.NewMessage("", nil)
	msg.Metadata = message.Metadata{"event_id": id, "event_source": source, "event_type": eventType, id: source, source: id}
	// the arbitrary keys above may have overwritten these
	msg.Metadata["event_id"], msg.Metadata["event_source"], msg.Metadata["event_type"] = id, source, eventType

	for key := range msg.Metadata {
		if strings.HasPrefix(strings.ToLower(key), "c") || key == "name" {
			delete(msg.Metadata, key) // may be a spelling of CloudEvents
		}
	}

	ev, err := inbox.Identify(msg, inbox.WithConsumer(func(*message.Message) string { return consumer }))

	switch {
	case consumer == "" && errors.Is(err, inbox.ErrNoConsumer), id == "" && errors.Is(err, inbox.ErrNoEventID):
		return nil
	case err != nil:
		t.Fatalf("refused: %v", err)
	case ev.Consumer != consumer || ev.Source != source || ev.ID != id || ev.Type != eventType:
		t.Fatalf("identity was changed to %#v", ev)
	}

	for _, s := range []string{consumer, source, id, eventType} {
		p := inbox.Printable(s)
		if len(p) > inbox.MaxPrintable || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
			t.Errorf("printable form of %q is %q", s, p)
		}
	}

	return &ev
}

// FuzzDecodeMessages shows that whatever is in the table, reading it back is an error or messages, never a panic.
func FuzzDecodeMessages(f *testing.F) {
	msg := message.NewMessage("uuid", []byte("payload"))
	msg.Metadata.Set("k\x00", "\xff")
	f.Add(inbox.EncodeMessages([]*message.Message{msg, message.NewMessage("", nil)}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})

	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := inbox.DecodeMessages(b)
		if err != nil {
			return
		}

		again, err := inbox.DecodeMessages(inbox.EncodeMessages(messages))
		if err != nil || len(again) != len(messages) {
			t.Fatalf("decoded to %d messages, and after encoding to %d: %v", len(messages), len(again), err)
		}

		for i := range messages {
			if !messages[i].Equals(again[i]) {
				t.Errorf("message %d changed from %v to %v", i, messages[i], again[i])
			}
		}
	})
}
