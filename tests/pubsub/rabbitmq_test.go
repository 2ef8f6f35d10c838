package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

func rabbitMQ(t *testing.T, m mode) pubSub {
	t.Helper()

	in := m.start(t)
	uri := address(t, "rabbitmq")

	grouped := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()

		pub, err := amqp.NewPublisher(amqp.NewDurablePubSubConfig(uri, nil), watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		sub, err := amqp.NewSubscriber(
			amqp.NewDurablePubSubConfig(uri, amqp.GenerateQueueNameTopicNameWithSuffix(group)), watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		return connected(t, pub, in(t, sub, group))
	}

	return pubSub{
		features: tests.Features{
			ConsumerGroups:                      true,
			ExactlyOnceDelivery:                 true,
			GuaranteedOrder:                     m.ordered,
			GuaranteedOrderWithSingleSubscriber: m.ordered,
			Persistent:                          true,
			ForceShort:                          short,
		},
		create:  inGroup(grouped),
		grouped: grouped,
	}
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()

	rabbitMQ(t, sameTransaction).test(t)
}

func TestRabbitMQStored(t *testing.T) {
	t.Parallel()

	rabbitMQ(t, storedFromQueues(testdb.PQ)).test(t)
}

func TestRabbitMQStoredInOrder(t *testing.T) {
	t.Parallel()

	rabbitMQ(t, storedInOrder(testdb.PQ)).test(t)
}
