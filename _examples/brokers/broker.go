package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// broker is all that the program needs of one.
type broker struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	close      func() error // what is left to close after these two; may be nil
}

func (b *broker) Close() error {
	err := errors.Join(b.publisher.Close(), b.subscriber.Close())
	if b.close != nil {
		err = errors.Join(err, b.close())
	}

	return err
}

// brokers has a file for each of them.
var brokers = map[string]struct {
	defaultAddr string
	open        func(ctx context.Context, addr, topic string, logger watermill.LoggerAdapter) (*broker, error)
}{
	"gochannel": {"", openGoChannel},
	"rabbitmq":  {"amqp://guest:guest@localhost:5672/", openRabbitMQ},
	"kafka":     {"localhost:9092", openKafka},
	"nats":      {"nats://localhost:4222", openNATS},
	"sql":       {defaultDSN, openSQL},
}

func brokerNames() string {
	return strings.Join(slices.Sorted(maps.Keys(brokers)), ", ")
}

func openBroker(ctx context.Context, name, addr, topic string, logger watermill.LoggerAdapter) (*broker, error) {
	b, err := brokers[name].open(ctx, addr, topic, logger)
	if err != nil {
		return nil, fmt.Errorf("%s at %q: %w", name, addr, err)
	}

	return b, nil
}
