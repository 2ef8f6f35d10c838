package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
)

// broker is a [message.Subscriber] in memory that always has a new message for one that was acked, until it has handed out
// as many as it was given. It costs little itself: one goroutine for each subscription, which waits for acks in the order
// of the messages.
type broker struct {
	flight   int // unacked messages of one subscription, at most
	messages int64

	handed, acked  atomic.Int64
	begun, drained chan struct{} // the first message is acked, and the last
	failed         chan error

	close         sync.Once
	closing       chan struct{}
	subscriptions sync.WaitGroup
}

func newBroker(flight int, messages int64) *broker {
	return &broker{
		flight: flight, messages: messages,
		begun: make(chan struct{}), drained: make(chan struct{}), failed: make(chan error, 1), closing: make(chan struct{}),
	}
}

// Subscribe adds a subscription that shares the messages with the others.
func (b *broker) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message, b.flight)

	b.subscriptions.Go(func() {
		defer close(out)

		if err := b.deliver(ctx, out); err != nil {
			select {
			case b.failed <- err:
			default: // another subscription failed first
			}
		}

		<-b.closing
	})

	return out, nil
}

func (b *broker) deliver(ctx context.Context, out chan<- *message.Message) error {
	var unacked []*message.Message

	for {
		for len(unacked) < b.flight && b.handed.Add(1) <= b.messages {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}

			msg := message.NewMessage(id.String(), []byte(payload))
			msg.SetContext(ctx)
			out <- msg // which has room for all that are unacked

			unacked = append(unacked, msg)
		}

		if len(unacked) == 0 {
			return nil
		}

		select {
		case <-unacked[0].Acked():
		case <-unacked[0].Nacked():
			return errors.New("a message was nacked")
		case <-b.closing:
			return nil
		}

		unacked = unacked[1:]

		n := b.acked.Add(1)
		if n == 1 {
			close(b.begun)
		}

		if n == b.messages {
			close(b.drained)
		}
	}
}

// await returns an error when messages are nacked before that is reached.
func (b *broker) await(ctx context.Context, reached <-chan struct{}) error {
	select {
	case <-reached:
		return nil
	case err := <-b.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// countAcks measures from the first ack on, when connections are open and statements prepared, as the others' are.
func (b *broker) countAcks(ctx context.Context, m *meter, duration time.Duration) error {
	if err := b.await(ctx, b.begun); err != nil {
		return err
	}

	before := b.acked.Load()

	if err := m.start(ctx); err != nil {
		return err
	}

	elapsed, cancel := context.WithTimeout(ctx, duration)
	defer cancel()

	if err := b.await(ctx, elapsed.Done()); err != nil {
		return err
	}

	return m.stop(ctx, b.acked.Load()-before)
}

func (b *broker) Close() error {
	b.close.Do(func() { close(b.closing) })
	b.subscriptions.Wait()

	return nil
}
