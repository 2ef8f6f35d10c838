package modes_test

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// acks is a subscriber that notes which messages were acked.
type acks struct {
	message.Subscriber

	mu    sync.Mutex
	acked map[string]chan struct{} // by UUID, closed at the ack
}

// of returns what is closed at the ack of a message.
func (a *acks) of(uuid string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()

	if a.acked == nil {
		a.acked = make(map[string]chan struct{})
	}

	if a.acked[uuid] == nil {
		a.acked[uuid] = make(chan struct{})
	}

	return a.acked[uuid]
}

func (a *acks) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := a.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}

	out := make(chan *message.Message)

	go func() {
		defer close(out)

		for msg := range in {
			ctx := msg.Context()
			go a.watch(ctx, msg)

			select {
			case out <- msg:
			case <-ctx.Done():
			}
		}
	}()

	return out, nil
}

func (a *acks) watch(ctx context.Context, msg *message.Message) {
	<-ctx.Done() // after the answer

	select {
	case <-msg.Acked():
		close(a.of(msg.UUID))
	default:
	}
}
