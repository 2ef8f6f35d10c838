package inbox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Event says what is being handled and by whom. Consumer, Source and ID identify it: two consumers of one event are
// two events, and so are two sources that happen to use the same id.
type Event struct {
	// Consumer is the name of the handler, see [WithConsumer].
	Consumer string
	// Source is who made the event, see [WithSource].
	Source string
	// ID is the event's id as it was received, byte for byte, see [WithEventID]. It is what external services
	// should get as the idempotency key.
	ID string
	// Type is informative, see [WithEventType]. It may be empty.
	Type string
	// Time is when the event was made, as its id or [WithEventTime] tells; zero where neither does.
	Time time.Time
}

// String returns a printable, bounded form for logs and errors.
func (ev Event) String() string {
	return fmt.Sprintf("%q from %q for consumer %q", printable(ev.ID), printable(ev.Source), printable(ev.Consumer))
}

// Metadata keys of the default chains. The CloudEvents ones are its attribute names in the spelling of each
// protocol binding: Kafka, HTTP headers as sent and as canonicalised (NATS uses those too), AMQP 1.0 in both forms
// that its binding allows.
var (
	idKeys     = append([]string{"event_id"}, cloudEventsKeys("id")...)
	sourceKeys = append([]string{"event_source"}, cloudEventsKeys("source")...)
	typeKeys   = append(append([]string{"event_type"}, cloudEventsKeys("type")...), "name")
)

func cloudEventsKeys(attribute string) []string {
	return []string{
		"ce_" + attribute,
		"ce-" + attribute,
		"Ce-" + strings.ToUpper(attribute[:1]) + attribute[1:],
		"cloudEvents_" + attribute,
		"cloudEvents:" + attribute,
	}
}

func firstOf(metadata message.Metadata, keys []string) string {
	for _, key := range keys {
		if v := metadata[key]; v != "" {
			return v
		}
	}

	return ""
}

func defaultEventID(msg *message.Message) string {
	if id := firstOf(msg.Metadata, idKeys); id != "" {
		return id
	}

	return msg.UUID
}

func defaultSource(msg *message.Message) string {
	if source := firstOf(msg.Metadata, sourceKeys); source != "" {
		return source
	}

	return message.SubscribeTopicFromCtx(msg.Context())
}

func defaultEventType(msg *message.Message) string {
	return firstOf(msg.Metadata, typeKeys)
}

func defaultConsumer(msg *message.Message) string {
	return message.HandlerNameFromCtx(msg.Context())
}

// identify finds out which event a message is.
func (c *config) identify(msg *message.Message) (Event, error) {
	return c.identifyFor(msg, c.consumer(msg))
}

func (c *config) identifyFor(msg *message.Message, consumer string) (Event, error) {
	ev := Event{
		Consumer: consumer,
		Source:   c.source(msg),
		Type:     c.eventType(msg),
	}

	for _, fn := range c.eventID {
		if ev.ID = fn(msg); ev.ID != "" {
			break
		}
	}

	if ev.Consumer == "" {
		return ev, fmt.Errorf("inbox: %w: run the handler in a router, or set WithConsumer (event %q from %q)",
			ErrNoConsumer, printable(ev.ID), printable(ev.Source))
	}

	if ev.ID == "" {
		return ev, fmt.Errorf("inbox: %w: consumer %q, source %q, metadata keys %q",
			ErrNoEventID, printable(ev.Consumer), printable(ev.Source), printableKeys(msg.Metadata))
	}

	if t, ok := timeOfID(ev.ID); ok {
		ev.Time = t
	} else if c.eventTime != nil {
		if t, ok := c.eventTime(msg); ok {
			ev.Time = t
		}
	}

	return ev, nil
}

// maxPrintable bounds, in bytes, what is stored of an id, source, consumer or type for people to read.
const maxPrintable = 255

// maxLastError bounds, in bytes, what is stored of the error of a failed attempt.
const maxLastError = 2000

// printable returns s in a form that every database, log and terminal can hold: at most maxPrintable bytes of valid
// UTF-8, with everything unprintable escaped as in a Go string. It is for reading only, never for comparing.
func printable(s string) string { return printableUpTo(s, maxPrintable) }

func printableUpTo(s string, most int) string {
	const ellipsis = "…"

	if len(s) <= most && isPlain(s) {
		return s
	}

	quoted := strconv.Quote(s[:min(len(s), most)])
	quoted = quoted[1 : len(quoted)-1]

	if len(s) <= most && len(quoted) <= most {
		return quoted
	}

	return strings.ToValidUTF8(quoted[:min(len(quoted), most-len(ellipsis))], "") + ellipsis
}

func isPlain(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return false
		}
	}

	return true
}

func printableKeys(metadata message.Metadata) []string {
	const most = 20

	keys := slices.Sorted(maps.Keys(metadata))
	keys = keys[:min(len(keys), most)]

	for i, key := range keys {
		keys[i] = printable(key)
	}

	return keys
}
