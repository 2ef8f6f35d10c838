package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
)

func openRabbitMQ(_ context.Context, addr, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	config := amqp.NewDurableQueueConfig(addr) // a queue with the name of the topic
	config.Publish.ConfirmDelivery = true      // or a publish succeeds before the broker has the message

	publisher, err := amqp.NewPublisher(config, logger)
	if err != nil {
		return nil, err
	}

	subscriber, err := amqp.NewSubscriber(config, logger)
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}

	return &broker{publisher: publisher, subscriber: subscriber}, nil
}
