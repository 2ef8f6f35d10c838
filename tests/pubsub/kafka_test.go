package pubsub_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

var kafkaFeatures = tests.Features{
	ConsumerGroups:      true,
	ExactlyOnceDelivery: true,
	Persistent:          true,
	ForceShort:          short,
}

func kafkaGroups(t *testing.T) tests.ConsumerGroupPubSubConstructor {
	t.Helper()

	l := newLedger(t)
	brokers := []string{address(t, "kafka")}

	return func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()

		pub, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, Marshaler: kafka.DefaultMarshaler{}}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		config := kafka.DefaultSaramaSubscriberConfig()
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
		config.Consumer.Group.Rebalance.Timeout = 3 * time.Second

		sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers:                brokers,
			Unmarshaler:            kafka.DefaultMarshaler{},
			OverwriteSaramaConfig:  config,
			ConsumerGroup:          group,
			InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: 1},
		}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		return l.wrap(t, pub, sub, group)
	}
}

func TestKafka(t *testing.T) {
	t.Parallel()

	grouped := kafkaGroups(t)
	tests.TestPubSub(t, kafkaFeatures, inGroup(grouped), grouped)
	testClosing(t, kafkaFeatures, inGroup(grouped))
}
