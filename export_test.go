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
)

// Identify finds the event of a message with the given options.
func Identify(msg *message.Message, opts ...Option) (Event, error) {
	c, err := newConfig(Postgres, opts)
	if err != nil {
		return Event{}, err
	}

	return c.identify(msg)
}

// Search is the search of a subscription that always finds messages further on.
type Search struct {
	search

	last place
}

// NewSearch returns one that has not looked yet.
func NewSearch() *Search { return &Search{} }

// Look looks at a time and reports whether that was from the beginning.
func (s *Search) Look(now time.Time, took time.Duration, short bool) (whole bool) {
	from := s.from(now)
	s.last.seq++
	s.found(from, s.last, short, now, now.Add(took))

	return from == place{}
}
