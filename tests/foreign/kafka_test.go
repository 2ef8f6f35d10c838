package foreign_test

import (
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/brokers/kafka"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// openKafka makes a topic of three partitions; the records of a test go to all of them.
func openKafka(t *testing.T) *topic {
	t.Helper()

	addr, err := servers.FromEnv("kafka")
	if err != nil {
		t.Fatal(err)
	}

	name := newName()
	on := &topic{
		name:    name,
		eventID: kafka.EventID,
		send: func(t *testing.T, messages ...foreign) {
			t.Helper()

			records := make([]*sarama.ProducerMessage, len(messages))

			for i, m := range messages {
				records[i] = &sarama.ProducerMessage{Value: sarama.StringEncoder(m.body)}
				for key, value := range m.headers {
					header := sarama.RecordHeader{Key: []byte(key), Value: []byte(value)}
					records[i].Headers = append(records[i].Headers, header)
				}
			}

			produceKafka(t, addr, name, records...)
		},
		publisher: func(log watermill.LoggerAdapter) (message.Publisher, error) {
			return wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: []string{addr}}, log)
		},
		subscriber: func(group string, log watermill.LoggerAdapter) (message.Subscriber, error) {
			return newKafkaSubscriber(addr, group, log)
		},
		spellings: []string{"ce_"},
		odd:       message.Metadata{"odd \x00\xff:\r\n": "\x00\xff\r\n", "empty": "", "": "no name"},
	}

	sub, err := newKafkaSubscriber(addr, "", newLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, sub)

	if err := sub.SubscribeInitialize(name); err != nil {
		t.Fatal(err)
	}

	return on
}

func newKafkaSubscriber(addr, group string, log watermill.LoggerAdapter) (*wmkafka.Subscriber, error) {
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Metadata.Retry.Backoff = 100 * time.Millisecond

	return wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers:                []string{addr},
		ConsumerGroup:          group,
		Unmarshaler:            kafka.Unmarshaler{},
		NackResendSleep:        20 * time.Millisecond,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1},
		OverwriteSaramaConfig:  config,
	}, log)
}

// produceKafka sends records to the partitions in turn.
func produceKafka(t *testing.T, addr, topic string, records ...*sarama.ProducerMessage) {
	t.Helper()

	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0 // for headers
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewRoundRobinPartitioner

	producer, err := sarama.NewSyncProducer([]string{addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, producer)

	for _, record := range records {
		record.Topic = topic
		if _, _, err := producer.SendMessage(record); err != nil {
			t.Fatal(err)
		}
	}
}
