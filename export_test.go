package inbox

import (
	"github.com/ThreeDotsLabs/watermill/message"
)

// What the tests of this package see beyond the API.
var (
	EncodeMessages = encodeMessages
	DecodeMessages = decodeMessages
	Printable      = printable
	TimeOfID       = timeOfID
)

const MaxPrintable = maxPrintable

// Identify finds the event of a message with the given options.
func Identify(msg *message.Message, opts ...Option) (Event, error) {
	c, err := newConfig(Postgres, opts)
	if err != nil {
		return Event{}, err
	}

	return c.identify(msg)
}
