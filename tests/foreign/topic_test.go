package foreign_test

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// foreign is what a producer that knows nothing of Watermill publishes.
type foreign struct {
	body    string
	id      string // in the broker's own place for ids; Kafka has none
	headers map[string]string
}

// topic is one that no other test uses, on a real broker.
type topic struct {
	name string
	// eventID goes to inbox.WithEventID, unless it is nil.
	eventID func(*message.Message) string
	// send publishes with a plain client and returns when the broker has the messages.
	send func(t *testing.T, messages ...foreign)
	// publisher is Watermill's.
	publisher func(log watermill.LoggerAdapter) (message.Publisher, error)
	// subscriber is Watermill's, with the unmarshaler under test. Each group gets every message.
	subscriber func(group string, log watermill.LoggerAdapter) (message.Subscriber, error)
	// spellings are those of CloudEvents attributes in the bindings that reach this broker.
	spellings []string
	// odd are metadata that the broker's protocol can hold.
	odd message.Metadata
}

var brokers = []struct {
	name string
	open func(t *testing.T) *topic
}{
	{"rabbitmq", openRabbitMQ},
	{"kafka", openKafka},
	{"nats", openNATS},
	{"jetstream", openJetStream},
}

// onEveryBroker runs a scenario in parallel subtests named after the brokers.
func onEveryBroker(t *testing.T, scenario func(t *testing.T, on *topic)) {
	t.Helper()

	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, b.open(t))
		})
	}
}

var serial atomic.Int64

func newName() string { return fmt.Sprintf("orders_%x_%d", time.Now().UnixNano(), serial.Add(1)) }

func mustClose(t *testing.T, c io.Closer) {
	t.Helper()

	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// patience is for a machine that is busy with much else.
const patience = 2 * time.Minute

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()

	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()

	for deadline := time.After(patience); !holds(); {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// receive waits for something that another goroutine sends.
func receive[T any](t *testing.T, what string, from <-chan T) (value T) {
	t.Helper()

	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}

	return value
}
