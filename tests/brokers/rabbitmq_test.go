package brokers

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
)

// rabbitMQ has one durable queue for each topic; its consumers need no group. Watermill reconnects by itself.
var rabbitMQ = &broker{
	name:   "rabbitmq",
	server: "rabbitmq",
	publisher: func(addr string, log watermill.LoggerAdapter) (message.Publisher, error) {
		return amqp.NewPublisher(rabbitMQConfig(addr), log)
	},
	subscriber: func(addr, _ string, log watermill.LoggerAdapter) (message.Subscriber, error) {
		return amqp.NewSubscriber(rabbitMQConfig(addr), log)
	},
}

func rabbitMQConfig(addr string) amqp.Config {
	config := amqp.NewDurableQueueConfig(addr)
	// Without it Publish succeeds before the broker has the message, and an outage loses it.
	config.Publish.ConfirmDelivery = true
	config.Connection.Reconnect = &amqp.ReconnectConfig{
		BackoffInitialInterval: 50 * time.Millisecond,
		BackoffMultiplier:      1.5,
		BackoffMaxInterval:     500 * time.Millisecond,
	}

	return config
}
