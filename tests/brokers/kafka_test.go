package brokers

import (
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// kafkaBroker has three partitions for each topic. The subscriber reconnects by itself, as a new member of its group:
// the members that are left wait for the session timeout of one that died.
var kafkaBroker = &broker{
	name:   "kafka",
	server: "kafka",
	publisher: func(addr string, log watermill.LoggerAdapter) (message.Publisher, error) {
		config := kafka.DefaultSaramaSyncPublisherConfig()
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Retry.Max = 3
		config.Metadata.Retry.Backoff = 100 * time.Millisecond

		return kafka.NewPublisher(kafka.PublisherConfig{Brokers: []string{addr}, OverwriteSaramaConfig: config}, log)
	},
	subscriber: func(addr, group string, log watermill.LoggerAdapter) (message.Subscriber, error) {
		config := kafka.DefaultSaramaSubscriberConfig()
		// The default starts a group that has no offset yet at the end of the topic, past what was published before.
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
		config.Consumer.MaxWaitTime = 100 * time.Millisecond
		config.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
		config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
		config.Consumer.Group.Rebalance.Timeout = 3 * time.Second
		config.Metadata.Retry.Backoff = 100 * time.Millisecond

		return kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers:                []string{addr},
			ConsumerGroup:          group,
			NackResendSleep:        20 * time.Millisecond,
			ReconnectRetrySleep:    100 * time.Millisecond,
			InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1},
			OverwriteSaramaConfig:  config,
		}, log)
	},
}
