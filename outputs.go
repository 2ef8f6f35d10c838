package inbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
)

// keepOutputs makes the outputs of a handler survive the commit, by either strategy, and returns what the router has to
// publish.
func (ib *Inbox) keepOutputs(ctx context.Context, s *scope, outputs []*message.Message) ([]*message.Message, error) {
	if len(outputs) == 0 {
		return nil, nil
	}

	// The router would trip over these after the commit.
	if i := slices.Index(outputs, nil); i >= 0 {
		return nil, fmt.Errorf("handler returned %d messages, of which number %d is nil", len(outputs), i+1)
	}

	ib.warnOfSharedIDs(s, outputs)

	if ib.outbox != nil {
		return nil, ib.publishInTx(ctx, s, outputs)
	}

	if err := ib.repo.storeOutputs(ctx, s.tx.Tx, s.key, encodeMessages(outputs)); err != nil {
		return nil, fmt.Errorf("storing outputs: %w", err)
	}

	return outputs, nil
}

func (ib *Inbox) publishInTx(ctx context.Context, s *scope, outputs []*message.Message) error {
	topic := message.PublishTopicFromCtx(ctx)
	if topic == "" {
		return errors.New("WithOutbox: handler returned messages but has no publish topic")
	}

	publisher, err := ib.outbox(s.tx.Tx)
	if err != nil {
		return fmt.Errorf("WithOutbox: making a publisher: %w", err)
	}

	if publisher == nil {
		return errors.New("WithOutbox: function returned no publisher")
	}

	if err := publisher.Publish(topic, outputs...); err != nil {
		return fmt.Errorf("WithOutbox: publishing to %q: %w", topic, err)
	}

	return nil
}

// mayHaveOutputs spares duplicates a query where the router cannot publish anything. Outside of a router nothing is known
// about it, and with WithOutbox there may still be outputs that were stored before it was set.
func mayHaveOutputs(ctx context.Context) bool {
	const noPublisher = "message.disabledPublisher" // of handlers added with Router.AddConsumerHandler

	return message.PublisherNameFromCtx(ctx) != noPublisher
}

// Messages are stored as a sequence of length-prefixed strings (see appendPrefixed), each message as its UUID, payload,
// number of metadata entries, and the entries' keys and values ordered by key. Unlike JSON this keeps every byte.

func encodeMessages(messages []*message.Message) []byte { return appendMessages(nil, messages) }

func appendMessages(b []byte, messages []*message.Message) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(messages)))
	for _, msg := range messages {
		b = appendPrefixed(b, msg.UUID)
		b = appendPrefixed(b, msg.Payload)
		b = binary.BigEndian.AppendUint32(b, uint32(len(msg.Metadata)))

		for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
			b = appendPrefixed(b, key)
			b = appendPrefixed(b, msg.Metadata[key])
		}
	}

	return b
}

var errTruncated = errors.New("stored messages are truncated")

// decodeMessages is the reverse of encodeMessages. Nothing stored is no messages.
func decodeMessages(b []byte) ([]*message.Message, error) {
	if len(b) == 0 {
		return nil, nil
	}

	d := decoder{rest: b}

	var messages []*message.Message

	for n := d.number(); n > 0 && !d.failed; n-- {
		msg := message.NewMessage(d.text(), message.Payload(d.text()))

		for entries := d.number(); entries > 0 && !d.failed; entries-- {
			key := d.text()
			msg.Metadata[key] = d.text()
		}

		messages = append(messages, msg)
	}

	if d.failed || len(d.rest) > 0 {
		return nil, errTruncated
	}

	return messages, nil
}

// appendPrefixed appends the length of s in bytes as a big-endian uint32, followed by s.
func appendPrefixed[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))

	return append(b, s...)
}

// decoder reads what appendPrefixed wrote. After the first failure it returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) take(n uint32) []byte {
	if uint64(n) > uint64(len(d.rest)) {
		d.rest, d.failed = nil, true

		return nil
	}

	taken := d.rest[:n]
	d.rest = d.rest[n:]

	return taken
}

func (d *decoder) number() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}

	return 0
}

func (d *decoder) text() string { return string(d.take(d.number())) }
