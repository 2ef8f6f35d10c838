package nats

import (
	"errors"
	"strconv"
	"strings"

	wmjetstream "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MetadataCoordinates is where the unmarshalers keep a message's coordinates, "stream/sequence". It is the broker's to
// tell: a header of that name, which a message copied from one stream to another may carry, is dropped.
const MetadataCoordinates = "nats_coordinates"

// ErrNoMessage is returned for a nil message.
var ErrNoMessage = errors.New("nats: no message")

// Unmarshaler is the Unmarshaler for the SubscriberConfig of Watermill's nats package. The zero value is ready. It is
// safe for concurrent use.
type Unmarshaler struct{}

// JetStreamUnmarshaler is the Unmarshaler for the SubscriberConfig of Watermill's jetstream package. The zero value is
// ready. It is safe for concurrent use.
type JetStreamUnmarshaler struct{}

var (
	_ wmnats.Unmarshaler      = Unmarshaler{}
	_ wmjetstream.Unmarshaler = JetStreamUnmarshaler{}
)

// Unmarshal makes a Watermill message of a NATS message. The UUID is the header that Watermill's publisher sets; when
// that is missing or empty, Nats-Msg-Id; when that is empty too, empty. Other headers become metadata, the values of a
// repeated one joined by ", ", except those with which a publisher instructs the stream (Nats-Msg-Id and
// Nats-Expected-*): sent along with a handler's output they would make the stream drop or refuse it. A message
// without Watermill's UUID gets [MetadataCoordinates] as well, if it came through JetStream. The only error is
// [ErrNoMessage].
func (Unmarshaler) Unmarshal(msg *nats.Msg) (*message.Message, error) {
	if msg == nil {
		return nil, ErrNoMessage
	}

	return toWatermill(msg.Header, msg.Data, func() string {
		meta, err := msg.Metadata()
		if err != nil { // not of JetStream
			return ""
		}

		return coordinates(meta.Stream, meta.Sequence.Stream)
	}), nil
}

// Unmarshal does the same as [Unmarshaler.Unmarshal].
func (JetStreamUnmarshaler) Unmarshal(msg jetstream.Msg) (*message.Message, error) {
	if msg == nil {
		return nil, ErrNoMessage
	}

	return toWatermill(msg.Headers(), msg.Data(), func() string {
		meta, err := msg.Metadata()
		if err != nil {
			return ""
		}

		return coordinates(meta.Stream, meta.Sequence.Stream)
	}), nil
}

func toWatermill(header nats.Header, data []byte, place func() string) *message.Message {
	metadata := make(message.Metadata, len(header)+1)

	for key, values := range header {
		switch key {
		case wmnats.WatermillUUIDHdr, MetadataCoordinates, nats.MsgIdHdr, nats.ExpectedLastMsgIdHdr,
			nats.ExpectedStreamHdr, nats.ExpectedLastSubjSeqHdr, nats.ExpectedLastSeqHdr:
		default:
			metadata[key] = strings.Join(values, ", ")
		}
	}

	uuid := header.Get(wmnats.WatermillUUIDHdr)

	if uuid == "" {
		uuid = header.Get(nats.MsgIdHdr)

		if at := place(); at != "" {
			metadata[MetadataCoordinates] = at
		}
	}

	msg := message.NewMessage(uuid, data)
	msg.Metadata = metadata

	return msg
}

// coordinates are unambiguous: the sequence is what follows the last slash. Streams count from 1; 0 is what the client
// makes of a number that it cannot read.
func coordinates(stream string, sequence uint64) string {
	if stream == "" || sequence == 0 {
		return ""
	}

	return stream + "/" + strconv.FormatUint(sequence, 10)
}
