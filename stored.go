package inbox

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// storedVersion is the first byte of a stored message, for the day when the encoding has to change.
const storedVersion = 1

var errStoredVersion = errors.New("stored message is of a newer version of the library")

// appendStored keeps a message with what the inbox knows of it, byte for byte: the strings of its event as they were
// received, its topic, and the message in the encoding of outputs.go.
func appendStored(b []byte, ev Event, topic string, msg *message.Message) []byte {
	b = append(b, storedVersion)

	for _, s := range []string{ev.Consumer, ev.Source, ev.ID, ev.Type, topic} {
		b = appendPrefixed(b, s)
	}

	at, _ := ev.Time.UTC().MarshalBinary() // in UTC it has no offset to fail on
	b = appendPrefixed(b, at)

	return appendMessages(b, []*message.Message{msg})
}

// decodeStored is the reverse of appendStored.
func decodeStored(b []byte) (ev Event, topic string, msg *message.Message, err error) {
	if len(b) == 0 {
		return ev, "", nil, errTruncated
	}

	if b[0] != storedVersion {
		return ev, "", nil, errStoredVersion
	}

	d := decoder{rest: b[1:]}
	for _, s := range []*string{&ev.Consumer, &ev.Source, &ev.ID, &ev.Type, &topic} {
		*s = d.text()
	}

	var at time.Time
	if err := at.UnmarshalBinary([]byte(d.text())); err != nil {
		return ev, "", nil, errTruncated
	}

	if !at.IsZero() {
		ev.Time = at
	}

	messages, err := decodeMessages(d.rest)
	if err != nil {
		return ev, "", nil, err
	}

	if len(messages) != 1 {
		return ev, "", nil, errTruncated
	}

	return ev, topic, messages[0], nil
}
