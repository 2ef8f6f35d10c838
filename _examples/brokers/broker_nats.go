package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	watermillnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats.go"
)

// openNATS uses JetStream. The client deletes the durable consumer that it made when it unsubscribes, so a second run
// with the same ID gets the stream from its start, which is what an inbox is for.
func openNATS(_ context.Context, addr, topic string, logger watermill.LoggerAdapter) (*broker, error) {
	jetStream := watermillnats.JetStreamConfig{
		AutoProvision: true, // a stream with the name of the topic
		DurablePrefix: topic,
		SubscribeOptions: []nats.SubOpt{
			nats.DeliverAll(),
			nats.AckExplicit(),
			nats.ManualAck(), // or the client acks what is in flight when the subscriber closes, and it is lost
		},
	}

	publisher, err := watermillnats.NewPublisher(watermillnats.PublisherConfig{URL: addr, JetStream: jetStream}, logger)
	if err != nil {
		return nil, err
	}

	subscriber, err := watermillnats.NewSubscriber(watermillnats.SubscriberConfig{
		URL:              addr,
		QueueGroupPrefix: topic,
		SubscribersCount: 4,
		JetStream:        jetStream,
	}, logger)
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}

	return &broker{publisher: publisher, subscriber: subscriber}, nil
}
