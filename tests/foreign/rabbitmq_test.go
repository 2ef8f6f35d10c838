package foreign_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/watermill-inbox/inbox/brokers/amqp"
	"github.com/watermill-inbox/inbox/tests/servers"
)

func rabbitMQURL(t *testing.T) string {
	t.Helper()

	url, err := servers.FromEnv("rabbitmq")
	if err != nil {
		t.Fatal(err)
	}

	return url
}

func openRabbitMQ(t *testing.T) *topic {
	t.Helper()

	return rabbitMQTopic(t, wmamqp.NewDurableQueueConfig(rabbitMQURL(t)))
}

// rabbitMQTopic declares the queue of a new topic in the way that config says.
func rabbitMQTopic(t *testing.T, config wmamqp.Config) *topic {
	t.Helper()

	config.Marshaler = amqp.Marshaler{}
	config.Publish.ConfirmDelivery = true

	name := newName()
	on := &topic{
		name: name,
		send: func(t *testing.T, messages ...foreign) {
			t.Helper()

			for _, m := range messages {
				headers := make(amqp091.Table)
				for key, value := range m.headers {
					headers[key] = value
				}

				publishAMQP(t, name, amqp091.Publishing{MessageId: m.id, Headers: headers, Body: []byte(m.body)})
			}
		},
		publisher: func(log watermill.LoggerAdapter) (message.Publisher, error) {
			return wmamqp.NewPublisher(config, log)
		},
		subscriber: func(_ string, log watermill.LoggerAdapter) (message.Subscriber, error) {
			return wmamqp.NewSubscriber(config, log)
		},
		// AMQP 1.0's, which RabbitMQ turns into headers for consumers of 0-9-1.
		spellings: []string{"cloudEvents:", "cloudEvents_"},
		odd:       message.Metadata{"odd \x00\xff:\r\n": "\x00\xff\r\n", "empty": "", "": "no name"},
	}

	sub, err := wmamqp.NewSubscriber(config, newLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, sub)

	if err := sub.SubscribeInitialize(name); err != nil {
		t.Fatal(err)
	}

	return on
}

// withChannel lends a channel of a connection of its own.
func withChannel(t *testing.T, do func(ch *amqp091.Channel)) {
	t.Helper()

	conn, err := amqp091.Dial(rabbitMQURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, conn)

	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}

	do(ch)
}

// publishAMQP sends a message to a queue and waits for the broker to confirm it.
func publishAMQP(t *testing.T, queue string, p amqp091.Publishing) {
	t.Helper()

	withChannel(t, func(ch *amqp091.Channel) {
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}

		confirmation, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, true, false, p)
		if err != nil {
			t.Fatal(err)
		}

		if !confirmation.Wait() {
			t.Fatal("not confirmed")
		}
	})
}
