package pubsub_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// kafkaGroups has several partitions, and no order between them.
func kafkaGroups(t *testing.T, m mode) pubSub {
	t.Helper()

	in := m.start(t)
	brokers := []string{address(t, "kafka")}

	grouped := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
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
			Brokers:                     brokers,
			Unmarshaler:                 kafka.DefaultMarshaler{},
			OverwriteSaramaConfig:       config,
			ConsumerGroup:               group,
			InitializeTopicDetails:      &sarama.TopicDetail{NumPartitions: 8, ReplicationFactor: 1},
			WaitForTopicCreationTimeout: time.Minute, // the suite makes dozens at once
		}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		return connected(t, pub, in(t, sub, group))
	}

	return pubSub{
		features: tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: true,
			Persistent:          true,
			ForceShort:          short,
		},
		create:  inGroup(grouped),
		grouped: grouped,
	}
}

func TestKafka(t *testing.T) {
	t.Parallel()

	kafkaGroups(t, sameTransaction).test(t)
}

func TestKafkaStored(t *testing.T) {
	t.Parallel()

	kafkaGroups(t, stored(testdb.PQ)).test(t)
}
