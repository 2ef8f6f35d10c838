package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

var rabbitMQFeatures = tests.Features{
	ConsumerGroups:                      true,
	ExactlyOnceDelivery:                 true,
	GuaranteedOrder:                     true,
	GuaranteedOrderWithSingleSubscriber: true,
	Persistent:                          true,
	ForceShort:                          short,
}

func rabbitMQ(t *testing.T) tests.ConsumerGroupPubSubConstructor {
	t.Helper()

	l := newLedger(t)
	uri := address(t, "rabbitmq")

	return func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
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

		return l.wrap(t, pub, sub, group)
	}
}

func TestRabbitMQ(t *testing.T) {
	t.Parallel()

	grouped := rabbitMQ(t)
	tests.TestPubSub(t, rabbitMQFeatures, inGroup(grouped), grouped)
	testClosing(t, rabbitMQFeatures, inGroup(grouped))
}
