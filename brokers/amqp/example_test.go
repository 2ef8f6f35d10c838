package amqp_test

import (
	"fmt"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/watermill-inbox/inbox/brokers/amqp"
)

func Example() {
	config := wmamqp.NewDurableQueueConfig("amqp://guest:guest@localhost:5672/")
	config.Marshaler = amqp.Marshaler{} // for wmamqp.NewSubscriber(config, logger)

	// What a producer that is not Watermill sent, after it went through a dead-letter exchange.
	msg, err := config.Marshaler.Unmarshal(amqp091.Delivery{
		MessageId: "order-7-paid",
		Type:      "order.paid",
		Headers:   amqp091.Table{"x-death": []any{amqp091.Table{"reason": "expired", "count": int64(2)}}},
		Body:      []byte(`{"order":7}`),
	})
	if err != nil {
		panic(err)
	}

	fmt.Println(msg.UUID)
	fmt.Println(msg.Metadata.Get(amqp.MetadataType))
	fmt.Println(msg.Metadata.Get("x-death"))
	// Output:
	// order-7-paid
	// order.paid
	// [{"count":2,"reason":"expired"}]
}
