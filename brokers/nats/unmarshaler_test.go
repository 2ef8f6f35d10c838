package nats

import (
	"errors"
	"testing"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The reply subjects of JetStream deliveries, in the form of today and in that of servers to come.
const (
	replyV1 = "$JS.ACK.ORDERS.billing.1.42.7.1709211601000000000.0"
	replyV2 = "$JS.ACK.eu.accounthash.ORDERS.billing.1.42.7.1709211601000000000.0.random"
)

// jsMsg is a message as the jetstream package hands it out, which only that package can make.
type jsMsg struct {
	jetstream.Msg
	msg *nats.Msg
}

func (m jsMsg) Data() []byte         { return m.msg.Data }
func (m jsMsg) Headers() nats.Header { return m.msg.Header }

func (m jsMsg) Metadata() (*jetstream.MsgMetadata, error) {
	meta, err := m.msg.Metadata()
	if err != nil {
		return nil, err
	}

	return &jetstream.MsgMetadata{
		Stream:   meta.Stream,
		Sequence: jetstream.SequencePair{Stream: meta.Sequence.Stream, Consumer: meta.Sequence.Consumer},
	}, nil
}

func received(reply string, header nats.Header) *nats.Msg {
	return &nats.Msg{Reply: reply, Header: header, Data: []byte("payload"), Sub: &nats.Subscription{}}
}

// unmarshal uses both unmarshalers, which have to agree.
func unmarshal(t *testing.T, msg *nats.Msg) *message.Message {
	t.Helper()

	got, err := Unmarshaler{}.Unmarshal(msg)
	if err != nil {
		t.Fatal(err)
	}

	other, err := JetStreamUnmarshaler{}.Unmarshal(jsMsg{msg: msg})
	if err != nil {
		t.Fatal(err)
	}

	if !got.Equals(other) {
		t.Fatalf("nats:      %q %q\njetstream: %q %q", got.UUID, got.Metadata, other.UUID, other.Metadata)
	}

	return got
}

// Report: watermill 184, 192, 265.
func TestUnmarshal(t *testing.T) {
	t.Parallel()

	const header = wmnats.WatermillUUIDHdr

	at := message.Metadata{MetadataCoordinates: "ORDERS/42"}

	for name, c := range map[string]struct {
		reply    string
		header   nats.Header
		uuid     string
		metadata message.Metadata
	}{
		"message without headers has coordinates only": {
			reply: replyV1, metadata: at,
		},
		"with the reply of servers to come": {
			reply: replyV2, metadata: at,
		},
		"Nats-Msg-Id is the UUID": {
			reply: replyV1, header: nats.Header{nats.MsgIdHdr: {"m-1"}}, uuid: "m-1", metadata: at,
		},
		"Watermill's UUID comes first": {
			reply: replyV1, header: nats.Header{nats.MsgIdHdr: {"m-1"}, header: {"u-1"}, "a": {"b"}},
			uuid: "u-1", metadata: message.Metadata{"a": "b"},
		},
		"empty UUID is no UUID": {
			reply: replyV1, header: nats.Header{nats.MsgIdHdr: {"m-1"}, header: {""}}, uuid: "m-1", metadata: at,
		},
		"coordinates of an earlier stream are not believed": {
			reply: replyV1, header: nats.Header{MetadataCoordinates: {"EARLIER/1"}}, metadata: at,
		},
		"nor with a UUID": {
			reply: replyV1, header: nats.Header{header: {"u-1"}, MetadataCoordinates: {"EARLIER/1"}},
			uuid: "u-1", metadata: message.Metadata{},
		},
		"nor on core NATS": {
			header: nats.Header{MetadataCoordinates: {"EARLIER/1"}}, metadata: message.Metadata{},
		},
		"values of a repeated header are joined": {
			header:   nats.Header{"a": {"1", "2", ""}, "b": {"\xff"}, "c": {}, "d": nil},
			metadata: message.Metadata{"a": "1, 2, ", "b": "\xff", "c": "", "d": ""},
		},
		"repeated ids": {
			header: nats.Header{nats.MsgIdHdr: {"m-1", "m-2"}}, uuid: "m-1", metadata: message.Metadata{},
		},
		"instructions to the stream do not come along": {
			header: nats.Header{
				nats.MsgIdHdr: {""}, nats.ExpectedStreamHdr: {"x"}, nats.ExpectedLastMsgIdHdr: {"x"},
				nats.ExpectedLastSeqHdr: {"1", "2"}, nats.ExpectedLastSubjSeqHdr: {"1"},
			},
			metadata: message.Metadata{},
		},
		"request over core NATS":       {reply: "_INBOX.abc.1", metadata: message.Metadata{}},
		"reply that is cut off":        {reply: "$JS.ACK.ORDERS.billing.1.42", metadata: message.Metadata{}},
		"reply without a stream":       {reply: "$JS.ACK..billing.1.42.7.1.0", metadata: message.Metadata{}},
		"reply with a broken sequence": {reply: "$JS.ACK.ORDERS.billing.1.x.7.1.0", metadata: message.Metadata{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			want := message.NewMessage(c.uuid, []byte("payload"))
			want.Metadata = c.metadata

			if got := unmarshal(t, received(c.reply, c.header)); !got.Equals(want) {
				t.Fatalf("got %q %q %q", got.UUID, got.Metadata, got.Payload)
			}
		})
	}
}

func TestUnmarshal_takes_no_message_from_nil(t *testing.T) {
	t.Parallel()

	if msg, err := (Unmarshaler{}).Unmarshal(nil); !errors.Is(err, ErrNoMessage) || msg != nil {
		t.Fatalf("got %v, %v", msg, err)
	}

	if msg, err := (JetStreamUnmarshaler{}).Unmarshal(nil); !errors.Is(err, ErrNoMessage) || msg != nil {
		t.Fatalf("got %v, %v", msg, err)
	}
}

func TestUnmarshal_takes_a_message_without_subscription(t *testing.T) {
	t.Parallel()

	if got := unmarshal(t, &nats.Msg{Reply: replyV1}); EventID(got) != "" {
		t.Fatalf("got %q", got.Metadata)
	}
}

func FuzzWatermills_own_messages_pass_unchanged(f *testing.F) {
	f.Add("0193a1c0-0000-7000-8000-000000000001", "key", "value", []byte("payload"))
	f.Add("\x00", "\xff", "\x00\xff", []byte{0})
	f.Add("u", "Ce-Id", "", []byte(nil))

	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		own := message.NewMessage("u"+uuid, payload)
		own.Metadata.Set("event_id", "e")

		if key != wmnats.WatermillUUIDHdr && key != MetadataCoordinates {
			own.Metadata.Set(key, value)
		}

		marshaler := &wmnats.NATSMarshaler{}

		sent, err := marshaler.Marshal("orders", own)
		if err != nil {
			t.Fatal(err)
		}

		sent.Sub, sent.Reply = &nats.Subscription{}, replyV1

		want, err := marshaler.Unmarshal(sent)
		if err != nil {
			t.Fatal(err)
		}

		if got := unmarshal(t, sent); !got.Equals(want) {
			t.Fatalf("got %q %q %q, Watermill has %q %q", got.UUID, got.Metadata, got.Payload, want.UUID, want.Metadata)
		}
	})
}

func FuzzUnmarshal_takes_any_reply(f *testing.F) {
	f.Add(replyV1, "header", "value")
	f.Add(replyV2, nats.MsgIdHdr, "m-1")
	f.Add("$JS.ACK.........", "", "\x00")
	f.Add("$JS.ACK.s.c.1.99999999999999999999999.1.1.1", wmnats.WatermillUUIDHdr, "")

	f.Fuzz(func(t *testing.T, reply, key, value string) {
		msg := received(reply, nats.Header{key: {value, value}})

		if a, b := unmarshal(t, msg), unmarshal(t, msg); EventID(a) != EventID(b) {
			t.Fatalf("differs from one delivery to the next: %q, %q", EventID(a), EventID(b))
		}
	})
}
