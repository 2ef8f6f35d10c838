package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

// broker is Watermill's in-memory Pub/Sub with a memory: like a real broker it outlives the routers that it serves, and
// what they have not acked when they stop is delivered to the next one.
type broker struct {
	channel *gochannel.GoChannel

	mu      sync.Mutex
	last    int
	unacked map[int]*sentMessage
	acked   int
}

type sentMessage struct {
	number int
	topic  string
	msg    *message.Message
	latest *message.Message // the copy that the router got last, nil before
}

const numberKey = "broker_message_number"

func newBroker() *broker {
	return &broker{
		channel: gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{}),
		unacked: make(map[int]*sentMessage),
	}
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		sent := b.keep(topic, msg.Copy())

		if err := b.channel.Publish(topic, sent.msg); err != nil {
			return err
		}
	}

	return nil
}

func (b *broker) keep(topic string, msg *message.Message) *sentMessage {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.last++
	msg.Metadata.Set(numberKey, strconv.Itoa(b.last))
	b.unacked[b.last] = &sentMessage{number: b.last, topic: topic, msg: msg}

	return b.unacked[b.last]
}

func (b *broker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return b.channel.Subscribe(ctx, topic)
}

// Close does nothing: a router closes its publishers and subscribers, but here the next router needs them.
func (b *broker) Close() error { return nil }

func (b *broker) shutDown() error { return b.channel.Close() }

// handedOut is called with every message on its way from the broker to the router.
func (b *broker) handedOut(msg *message.Message) {
	number, err := strconv.Atoi(msg.Metadata.Get(numberKey))
	if err != nil {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if sent, ok := b.unacked[number]; ok {
		sent.latest = msg
	}
}

// progress returns how many messages were acked, ever, and how many are not.
func (b *broker) progress() (acked, unacked int) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for number, sent := range b.unacked {
		if sent.latest != nil && isAcked(sent.latest) {
			delete(b.unacked, number)
			b.acked++
		}
	}

	return b.acked, len(b.unacked)
}

func isAcked(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	default:
		return false
	}
}

// redeliver sends everything unacked again. It is for a new router, after the last one has stopped.
func (b *broker) redeliver() error {
	b.progress()

	b.mu.Lock()
	again := slices.SortedFunc(maps.Values(b.unacked), func(x, y *sentMessage) int { return cmp.Compare(x.number, y.number) })
	b.mu.Unlock()

	for _, sent := range again {
		if err := b.channel.Publish(sent.topic, sent.msg); err != nil {
			return err
		}
	}

	return nil
}
