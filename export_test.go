package inbox

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// What the tests of this package see beyond the API.
var (
	EncodeMessages = encodeMessages
	DecodeMessages = decodeMessages
	Printable      = printable
	TimeOfID       = timeOfID
)

const (
	MaxPrintable  = maxPrintable
	PollInterval  = pollInterval
	SlowLook      = slowLook
	RestAfterLook = restAfterLook
	LongestRest   = longestRest
)

// Identify finds the event of a message with the given options.
func Identify(msg *message.Message, opts ...Option) (Event, error) {
	c, err := newConfig(Postgres, opts)
	if err != nil {
		return Event{}, err
	}

	return c.identify(msg)
}

// Search is the search of a subscription.
type Search struct{ search }

// Look has the next look take its time, find less than it was to or not, or fail, and reports whether it was from the beginning.
func (s *Search) Look(now time.Time, took time.Duration, short bool, err error) (whole bool) {
	l := look{from: s.next(now), next: place{due: now.UnixMicro()}, short: short, took: took}
	s.ended(l, err, now.Add(took))

	return l.isWhole()
}
