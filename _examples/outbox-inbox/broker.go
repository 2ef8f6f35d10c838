package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

type broker struct {
	publisher  message.Publisher
	subscriber message.Subscriber
}

func (b *broker) Close() error {
	return errors.Join(b.publisher.Close(), b.subscriber.Close())
}

var brokers = map[string]struct {
	defaultAddr string
	open        func(ctx context.Context, addr, topic string, logger watermill.LoggerAdapter) (*broker, error)
}{
	"rabbitmq": {"amqp://guest:guest@localhost:5672/", openRabbitMQ},
	"kafka":    {"localhost:9092", openKafka},
}

func openBroker(ctx context.Context, cfg config, logger watermill.LoggerAdapter) (*broker, error) {
	b, err := brokers[cfg.broker].open(ctx, cfg.addr, cfg.ordersTopic(), logger)
	if err != nil {
		return nil, fmt.Errorf("%s at %q: %w", cfg.broker, cfg.addr, err)
	}

	return b, nil
}

func openRabbitMQ(_ context.Context, addr, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	config := amqp.NewDurableQueueConfig(addr) // a queue with the name of the topic
	config.Publish.ConfirmDelivery = true      // or a message can be marked as published that the broker never had

	publisher, err := amqp.NewPublisher(config, logger)
	if err != nil {
		return nil, err
	}

	subscriber, err := amqp.NewSubscriber(config, logger)
	if err != nil {
		return nil, errors.Join(err, publisher.Close())
	}

	return &broker{publisher, subscriber}, nil
}

func openKafka(ctx context.Context, addr, topic string, logger watermill.LoggerAdapter) (*broker, error) {
	consumer := kafka.DefaultSaramaSubscriberConfig()
	consumer.Consumer.Offsets.Initial = sarama.OffsetOldest // the first member may join after the first message

	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:                strings.Split(addr, ","),
		ConsumerGroup:          topic,
		OverwriteSaramaConfig:  consumer,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1},
	}, logger)
	if err != nil {
		return nil, err
	}

	// The router does not do this, and subscribing to a missing topic may not create it.
	if err := subscriber.SubscribeInitializeWithContext(ctx, topic); err != nil {
		return nil, errors.Join(err, subscriber.Close())
	}

	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: strings.Split(addr, ",")}, logger)
	if err != nil {
		return nil, errors.Join(err, subscriber.Close())
	}

	return &broker{publisher, subscriber}, nil
}
