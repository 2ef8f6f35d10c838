package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

// producer publishes events as Watermill does, but in batches, and each until RabbitMQ has confirmed it. It waits for the
// consumers: a worker takes over what another has lost only after what was stored before.
type producer struct {
	addr, topic string
	handled     func() int // events
	published   int        // messages that were confirmed
	unconfirmed int        // and those that were not, and published again: some of them are duplicates
}

// plan returns the events to publish, some of them several times, in the order of publishing.
func plan(random *rand.Rand, events int) (order []int) {
	for event := range events {
		copies := 1
		if event%3 == 0 {
			copies = 2 + random.IntN(3)
		}

		for range copies {
			order = append(order, event)
		}
	}

	// In the first half duplicates come at any time, in the second half soon.
	const soon = 100

	half := len(order) / 2
	shuffle(random, order[:half])

	for part := range slices.Chunk(order[half:], soon) {
		shuffle(random, part)
	}

	return order
}

func shuffle(random *rand.Rand, part []int) {
	random.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
}

func eventName(n int) string { return fmt.Sprintf("order-%d", n) }

// run publishes, and starts again where it was when the broker goes away, until ctx ends.
func (p *producer) run(ctx context.Context, order []int) error {
	const batch, ahead = 200, 1000

	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()

	known := make(map[int]bool)

	for len(order) > 0 {
		err := p.connected(func(ch *amqp.Channel) error {
			for len(order) > 0 {
				part := order[:min(batch, len(order))]
				for _, event := range part {
					known[event] = true
				}

				for p.handled() < len(known)-ahead {
					select {
					case <-again.C:
					case <-ctx.Done():
						return ctx.Err()
					}
				}

				if err := p.publish(ctx, ch, part); err != nil {
					p.unconfirmed += len(part)

					return err
				}

				p.published += len(part)
				order = order[len(part):]
			}

			return nil
		})
		if err == nil {
			continue
		}

		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}

	return nil
}

func (p *producer) connected(work func(ch *amqp.Channel) error) error {
	conn, err := amqp.Dial(p.addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it may have ended

	ch, err := conn.Channel()
	if err != nil {
		return err
	}

	if err := ch.Confirm(false); err != nil {
		return err
	}

	return work(ch)
}

func (p *producer) publish(ctx context.Context, ch *amqp.Channel, events []int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	var confirmations []*amqp.DeferredConfirmation

	for _, event := range events {
		publishing, err := wamqp.DefaultMarshaler{}.Marshal(newMessage(eventName(event)))
		if err != nil {
			return err
		}

		confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, p.topic, "", false, false, publishing)
		if err != nil {
			return err
		}

		confirmations = append(confirmations, confirmation)
	}

	for _, confirmation := range confirmations {
		if ok, err := confirmation.WaitContext(ctx); err != nil {
			return err
		} else if !ok {
			return amqp.ErrClosed
		}
	}

	return nil
}

// newMessage returns a message as a producer sends it: every sending has a UUID of its own, the event keeps its id.
func newMessage(event string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), message.Payload(event))
	msg.Metadata.Set("event_id", event)
	msg.Metadata.Set("event_source", "shop")

	return msg
}

// waiting returns how many messages are in a consumer's queue and not delivered.
func (p *producer) waiting(consumer string) (n int, err error) {
	err = p.connected(func(ch *amqp.Channel) error {
		queue, err := ch.QueueDeclarePassive(wamqp.GenerateQueueNameTopicNameWithSuffix(consumer)(p.topic), true, false, false, false, nil)
		n = queue.Messages

		return err
	})

	return n, err
}
