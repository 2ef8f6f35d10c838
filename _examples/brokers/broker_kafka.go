package main

import (
	"context"
	"errors"
	"strings"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

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

	return &broker{publisher: publisher, subscriber: subscriber}, nil
}
