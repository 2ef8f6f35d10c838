package main

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

// rabbitMQ subscribes to a durable queue of the consumer's own, which gets every message of the topic.
func rabbitMQ(addr, consumer string, log watermill.LoggerAdapter) (message.Subscriber, error) {
	config := amqp.NewDurablePubSubConfig(addr, amqp.GenerateQueueNameTopicNameWithSuffix(consumer))
	config.Consume.Qos.PrefetchCount = 4
	config.Connection.Reconnect = &amqp.ReconnectConfig{
		BackoffInitialInterval: 50 * time.Millisecond,
		BackoffMultiplier:      1.5,
		BackoffMaxInterval:     500 * time.Millisecond,
	}

	sub, err := amqp.NewSubscriber(config, log)
	if err != nil {
		return nil, err
	}

	return watched{sub, consumer}, nil
}

// watched tells of what the broker delivers and gets back.
type watched struct {
	*amqp.Subscriber
	consumer string
}

func (w watched) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := w.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}

	out := make(chan *message.Message)

	go func() {
		defer close(out)

		for msg := range in {
			tell(w.consumer, "delivered")

			go w.watch(msg.Context(), msg)

			out <- msg
		}
	}()

	return out, nil
}

func (w watched) watch(ctx context.Context, msg *message.Message) {
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
	case <-ctx.Done(): // the connection has ended, or it was acked or nacked
	}

	select {
	case <-msg.Nacked():
		tell(w.consumer, "nacked")
	default:
	}
}
