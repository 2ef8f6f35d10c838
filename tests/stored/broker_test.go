package stored_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/require"
)

// broker is a subscriber that delivers what the test sends and nothing else: it never redelivers by itself, and the test
// sees each delivery's ack or nack on the message that it sent.
type broker struct {
	mu    sync.Mutex
	feeds map[string]chan *message.Message

	closed        chan struct{}
	subscriptions sync.WaitGroup
	taken         atomic.Int64 // by who subscribed
}

func newBroker() *broker {
	return &broker{feeds: make(map[string]chan *message.Message), closed: make(chan struct{})}
}

func (b *broker) feed(topic string) chan *message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.feeds[topic] == nil {
		b.feeds[topic] = make(chan *message.Message)
	}

	return b.feeds[topic]
}

// Subscribe shares the topic's messages among its subscriptions.
func (b *broker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	feed, out := b.feed(topic), make(chan *message.Message)

	b.subscriptions.Go(func() {
		defer close(out)

		for {
			var msg *message.Message

			select {
			case msg = <-feed:
			case <-ctx.Done():
				return
			case <-b.closed:
				return
			}

			select {
			case out <- msg:
				b.taken.Add(1)
			case <-ctx.Done():
				return
			case <-b.closed:
				return
			}
		}
	})

	return out, nil
}

// Close ends all subscriptions.
func (b *broker) Close() error {
	close(b.closed)
	b.subscriptions.Wait()

	return nil
}

// send returns when the messages are on their way to a subscriber each.
func (b *broker) send(t testing.TB, topic string, messages ...*message.Message) {
	t.Helper()

	for _, msg := range messages {
		select {
		case b.feed(topic) <- msg:
		case <-time.After(require.Patience):
			t.Fatalf("waited %s for somebody to take message %q", require.Patience, msg.UUID)
		}
	}
}

// awaitTaken returns when so many messages have been taken since the beginning.
func (b *broker) awaitTaken(t testing.TB, n int) {
	t.Helper()
	require.Eventually(t, "messages are taken", func() bool { return b.taken.Load() >= int64(n) })
}

// delivery is what a broker makes of an event: a new message each time, with the same id.
func delivery(id string) *message.Message {
	return message.NewMessage(id, message.Payload("payload of "+id))
}

func deliveries(ids ...string) []*message.Message {
	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = delivery(id)
	}

	return messages
}

func requireAcked(t testing.TB, messages ...*message.Message) {
	t.Helper()

	for _, msg := range messages {
		require.Equal(t, "message "+msg.UUID+" is acked", answer(t, msg), true)
	}
}

func requireNacked(t testing.TB, messages ...*message.Message) {
	t.Helper()

	for _, msg := range messages {
		require.Equal(t, "message "+msg.UUID+" is acked", answer(t, msg), false)
	}
}

func answer(t testing.TB, msg *message.Message) (acked bool) {
	t.Helper()

	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return false
	case <-time.After(require.Patience):
		t.Fatalf("waited %s for an ack or nack of message %q", require.Patience, msg.UUID)
		panic("unreachable")
	}
}

func isAnswered(msg *message.Message) bool {
	return isClosed(msg.Acked()) || isClosed(msg.Nacked())
}

func isClosed[T any](ch <-chan T) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
