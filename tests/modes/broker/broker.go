// Package broker makes topics on real brokers, each with one message in flight at a time, so that one which comes again and
// again holds up the others. Everything it makes can be used by several processes.
package broker

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// Broker makes publishers and subscribers as a service would configure them, with short timeouts.
type Broker struct {
	Name       string
	Publisher  func(addr string) (message.Publisher, error)
	Subscriber func(addr, group string) (message.Subscriber, error)
}

// All brokers.
var All = []Broker{RabbitMQ, Kafka, NATS}

// RabbitMQ requeues a nacked message at once.
var RabbitMQ = Broker{
	Name: "rabbitmq",
	Publisher: func(addr string) (message.Publisher, error) {
		return amqp.NewPublisher(rabbitMQConfig(addr), watermill.NopLogger{})
	},
	Subscriber: func(addr, _ string) (message.Subscriber, error) {
		return amqp.NewSubscriber(rabbitMQConfig(addr), watermill.NopLogger{})
	},
}

func rabbitMQConfig(addr string) amqp.Config {
	config := amqp.NewDurableQueueConfig(addr)
	config.Publish.ConfirmDelivery = true

	return config
}

// Kafka has one partition for each topic, which a nacked message blocks until it is acked.
var Kafka = Broker{
	Name: "kafka",
	Publisher: func(addr string) (message.Publisher, error) {
		return kafka.NewPublisher(kafka.PublisherConfig{Brokers: []string{addr}}, watermill.NopLogger{})
	},
	Subscriber: func(addr, group string) (message.Subscriber, error) {
		config := kafka.DefaultSaramaSubscriberConfig()
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
		config.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
		config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
		config.Consumer.Group.Rebalance.Timeout = 3 * time.Second

		return kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers:                []string{addr},
			ConsumerGroup:          group,
			NackResendSleep:        20 * time.Millisecond,
			InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1},
			OverwriteSaramaConfig:  config,
		}, watermill.NopLogger{})
	},
}

// ackWait is how long NATS waits for the ack of a process that died.
const ackWait = 2 * time.Second

// NATS delivers a nacked message again at once.
var NATS = Broker{
	Name: "nats",
	Publisher: func(addr string) (message.Publisher, error) {
		return nats.NewPublisher(nats.PublisherConfig{
			URL: addr, JetStream: nats.JetStreamConfig{AutoProvision: true},
		}, watermill.NopLogger{})
	},
	Subscriber: func(addr, group string) (message.Subscriber, error) {
		return nats.NewSubscriber(nats.SubscriberConfig{
			URL:              addr,
			QueueGroupPrefix: group,
			SubscribersCount: 1,
			CloseTimeout:     10 * time.Second,
			AckWaitTimeout:   ackWait,
			JetStream: nats.JetStreamConfig{
				AutoProvision: true,
				DurablePrefix: group,
				SubscribeOptions: []natsgo.SubOpt{
					natsgo.AckExplicit(), natsgo.ManualAck(), natsgo.MaxAckPending(1), natsgo.AckWait(ackWait),
				},
			},
		}, watermill.NopLogger{})
	},
}

// ByName finds a broker of All.
func ByName(name string) (Broker, error) {
	for _, b := range All {
		if b.Name == name {
			return b, nil
		}
	}

	return Broker{}, fmt.Errorf("no broker %q", name)
}

// Topic is a topic that no other test uses, and the one group that consumes it.
type Topic struct {
	Broker, Addr, Name string
}

var serial atomic.Int64

// NewTopic makes a topic on the broker that the environment names. What is published before the first subscription is kept.
func (b Broker) NewTopic(t *testing.T) Topic {
	t.Helper()

	addr, err := servers.FromEnv(b.Name)
	require.OK(t, err)

	topic := Topic{Broker: b.Name, Addr: addr, Name: fmt.Sprintf("orders_%x_%d", time.Now().UnixNano(), serial.Add(1))}
	sub, err := topic.Subscriber()
	require.OK(t, err)

	if initializer, ok := sub.(message.SubscribeInitializer); ok {
		require.OK(t, initializer.SubscribeInitialize(topic.Name))
	}

	require.OK(t, sub.Close())

	return topic
}

// Subscriber makes a subscriber of the topic's group.
func (topic Topic) Subscriber() (message.Subscriber, error) {
	b, err := ByName(topic.Broker)
	if err != nil {
		return nil, err
	}

	return b.Subscriber(topic.Addr, topic.Name)
}

// Publisher makes a publisher.
func (topic Topic) Publisher() (message.Publisher, error) {
	b, err := ByName(topic.Broker)
	if err != nil {
		return nil, err
	}

	return b.Publisher(topic.Addr)
}

// Send publishes messages, one after another.
func (topic Topic) Send(t *testing.T, messages ...*message.Message) {
	t.Helper()

	pub, err := topic.Publisher()
	require.OK(t, err)

	for _, msg := range messages {
		require.OK(t, pub.Publish(topic.Name, msg))
	}

	require.OK(t, pub.Close())
}
