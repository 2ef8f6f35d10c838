package brokers

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
)

// natsGate makes it safe to close a subscriber that gets messages. watermill-nats v2.2.0 closes its channel while
// a message may still be on its way into it, which is a data race and a panic if it goes wrong. The gate stands before
// that channel and behind it, so that it can be shut and emptied first.
type natsGate struct {
	nats.NATSMarshaler

	mu     sync.Mutex
	shut   bool
	inside int
	empty  sync.Cond // inside is 0
}

var errGateShut = errors.New("the subscriber is closing")

func newNATSGate() *natsGate {
	g := &natsGate{}
	g.empty.L = &g.mu

	return g
}

// Unmarshal is the first thing that the subscriber does with a message; on an error it leaves it unacked.
func (g *natsGate) Unmarshal(m *natsgo.Msg) (*message.Message, error) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.shut {
		return nil, errGateShut
	}

	msg, err := g.NATSMarshaler.Unmarshal(m)
	if err == nil {
		g.inside++
	}

	return msg, err
}

func (g *natsGate) left() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.inside--
	g.empty.Broadcast()
}

func (g *natsGate) shutAndEmpty() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.shut = true

	for g.inside > 0 {
		g.empty.Wait()
	}
}

// Subscribe keeps ctx from the subscriber, which would drop messages between the two sides of the gate when it ends.
func (s *natsSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(context.WithoutCancel(ctx), topic)
	if err != nil {
		return nil, err
	}

	out := make(chan *message.Message)

	go func() {
		defer close(out)

		for msg := range in {
			s.gate.left()

			msgCtx, cancel := context.WithCancel(msg.Context())
			context.AfterFunc(ctx, cancel)
			msg.SetContext(msgCtx)

			select {
			case out <- msg:
			case <-ctx.Done(): // unacked, it comes again
			}
		}
	}()

	return out, nil
}

func (s *natsSubscriber) Close() error {
	s.gate.shutAndEmpty()

	return s.Subscriber.Close()
}
