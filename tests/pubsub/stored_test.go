package pubsub_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// stored has the suite read what inbox.Subscriber hands out. That is several messages at a time, and a message that is to be
// retried lets others pass, so the order of a broker is not kept.
func stored(engine testdb.Engine, opts ...inbox.SubscriberOption) mode {
	return mode{start: func(t *testing.T) between {
		t.Helper()

		return startStored(t, engine, opts...)
	}}
}

// storedFromQueues is for brokers that share the messages of a queue or group among several subscriptions, each of which
// has one message in flight.
func storedFromQueues(engine testdb.Engine) mode { return stored(engine, inbox.WithIngest(4)) }

// storedInOrder gives all messages of a topic the same ordering key, which makes a broker's order hold: one message is
// handed out at a time, in the order of storing, and one that is to be retried holds up the rest.
func storedInOrder(engine testdb.Engine) mode {
	m := stored(engine, inbox.WithOrderingKey(func(*message.Message) string { return "all" }))
	m.ordered = true

	return m
}

func startStored(t *testing.T, engine testdb.Engine, opts ...inbox.SubscriberOption) between {
	t.Helper()

	opts = append([]inbox.SubscriberOption{
		inbox.WithBackoff(10*time.Millisecond, 100*time.Millisecond),
		inbox.WithMaxAttempts(1000),      // the suite nacks without end
		inbox.WithLease(6 * time.Second), // after half of it, messages leave a reader that the suite has forgotten
	}, opts...)

	acked := tally{counts: make(map[string]int)}
	ib := database(t, engine).New(t, inbox.WithHooks(inbox.Hooks{Processed: acked.add}))

	t.Cleanup(func() { requireOnce(t, acked.counts) }) // after the subscribers were closed

	return func(t *testing.T, sub message.Subscriber, consumer string) message.Subscriber {
		t.Helper()

		opts := opts
		if consumer == "" {
			consumer = watermill.NewUUID()
			opts = append(opts[:len(opts):len(opts)], inbox.WithIngest(1)) // each subscription would take in everything
		}

		s, err := ib.Subscriber(consumer, sub, opts...)
		if err != nil {
			t.Fatal(err)
		}

		return s
	}
}

// tally counts the acks that completed an event.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (a *tally) add(_ context.Context, ev inbox.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.counts[inbox.KeyOf(ev).String()]++
}
