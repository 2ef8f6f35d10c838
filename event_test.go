package inbox_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

func TestIdentify(t *testing.T) {
	t.Parallel()

	consumer := inbox.WithConsumer(func(*message.Message) string { return "billing" })

	tests := map[string]struct {
		uuid     string
		metadata message.Metadata
		opts     []inbox.Option
		want     inbox.Event
	}{
		"event_id goes before CloudEvents and UUID": {
			uuid:     "uuid",
			metadata: message.Metadata{"event_id": "1", "ce_id": "2", "event_source": "s", "ce_source": "t", "event_type": "x", "ce_type": "y"},
			want:     inbox.Event{ID: "1", Source: "s", Type: "x"},
		},
		"CloudEvents over Kafka": {
			uuid:     "uuid",
			metadata: message.Metadata{"ce_id": "2", "ce_source": "t", "ce_type": "y", "name": "z"},
			want:     inbox.Event{ID: "2", Source: "t", Type: "y"},
		},
		"CloudEvents over HTTP": {
			metadata: message.Metadata{"ce-id": "2", "ce-source": "t", "ce-type": "y"},
			want:     inbox.Event{ID: "2", Source: "t", Type: "y"},
		},
		"CloudEvents over HTTP and NATS, canonicalised": {
			metadata: message.Metadata{"Ce-Id": "2", "Ce-Source": "t", "Ce-Type": "y"},
			want:     inbox.Event{ID: "2", Source: "t", Type: "y"},
		},
		"CloudEvents over AMQP with underscore": {
			metadata: message.Metadata{"cloudEvents_id": "2", "cloudEvents_source": "t", "cloudEvents_type": "y"},
			want:     inbox.Event{ID: "2", Source: "t", Type: "y"},
		},
		"CloudEvents over AMQP with colon": {
			metadata: message.Metadata{"cloudEvents:id": "2", "cloudEvents:source": "t", "cloudEvents:type": "y"},
			want:     inbox.Event{ID: "2", Source: "t", Type: "y"},
		},
		"UUID and the name of Watermill's CQRS come last": {
			uuid:     "uuid",
			metadata: message.Metadata{"event_id": "", "name": "orders.Placed"},
			want:     inbox.Event{ID: "uuid", Type: "orders.Placed"},
		},
		"the first function that finds an id decides": {
			uuid: "uuid",
			opts: []inbox.Option{inbox.WithEventID(
				func(msg *message.Message) string { return msg.Metadata["missing"] },
				func(msg *message.Message) string { return msg.UUID + "!" },
				func(*message.Message) string { panic("not reached") },
			)},
			want: inbox.Event{ID: "uuid!"},
		},
		"a source of one's own may be empty": {
			uuid:     "uuid",
			metadata: message.Metadata{"event_source": "s"},
			opts:     []inbox.Option{inbox.WithSource(func(*message.Message) string { return "" })},
			want:     inbox.Event{ID: "uuid"},
		},
		"a time of one's own fills in": {
			uuid: "uuid",
			opts: []inbox.Option{inbox.WithEventTime(func(*message.Message) (time.Time, bool) { return time.Unix(5, 0), true })},
			want: inbox.Event{ID: "uuid", Time: time.Unix(5, 0)},
		},
		"a time of one's own may be missing": {
			uuid: "uuid",
			opts: []inbox.Option{inbox.WithEventTime(func(*message.Message) (time.Time, bool) { return time.Unix(5, 0), false })},
			want: inbox.Event{ID: "uuid"},
		},
		"the id's own time wins": {
			uuid: "019adb40-0c00-7abc-8def-0123456789ab",
			opts: []inbox.Option{inbox.WithEventTime(func(*message.Message) (time.Time, bool) { return time.Unix(5, 0), true })},
			want: inbox.Event{ID: "019adb40-0c00-7abc-8def-0123456789ab", Time: time.UnixMilli(0x019adb400c00)},
		},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			msg := message.NewMessage(test.uuid, nil)
			msg.Metadata = test.metadata
			test.want.Consumer = "billing"

			got, err := inbox.Identify(msg, append(test.opts, consumer)...)
			if err != nil {
				t.Fatal(err)
			}

			if !got.Time.Equal(test.want.Time) {
				t.Errorf("time is %s, want %s", got.Time, test.want.Time)
			}

			got.Time = test.want.Time
			if got != test.want {
				t.Errorf("got %#v, want %#v", got, test.want)
			}
		})
	}
}

func TestIdentify_refuses_a_message_without_identity_and_names_what_it_had(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("", []byte("secret"))
	msg.Metadata.Set("x-trace", "secret")

	_, err := inbox.Identify(msg, inbox.WithConsumer(func(*message.Message) string { return "billing" }))
	if !errors.Is(err, inbox.ErrNoEventID) || !strings.Contains(err.Error(), "x-trace") || !strings.Contains(err.Error(), "billing") {
		t.Errorf("got %v", err)
	}

	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error tells secrets: %v", err)
	}

	msg.UUID = "uuid"
	if _, err := inbox.Identify(msg); !errors.Is(err, inbox.ErrNoConsumer) || !strings.Contains(err.Error(), "uuid") {
		t.Errorf("got %v", err)
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()

	tests := map[string]struct{ in, want string }{
		"plain text":                {"orders/größe-𝄞 1", "orders/größe-𝄞 1"},
		"NUL":                       {"a\x00b", `a\x00b`},
		"invalid UTF-8":             {"a\xffb", `a\xffb`},
		"line break":                {"a\nb", `a\nb`},
		"longest":                   {strings.Repeat("x", 255), strings.Repeat("x", 255)},
		"too long":                  {strings.Repeat("x", 256), strings.Repeat("x", 252) + "…"},
		"too long in several bytes": {strings.Repeat("€", 100), strings.Repeat("€", 84) + "…"},
		"too long when escaped":     {strings.Repeat("\x00", 100), strings.Repeat(`\x00`, 63) + "…"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if got := inbox.Printable(test.in); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
