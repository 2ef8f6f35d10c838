package kafka_test

import (
	"fmt"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/watermill-inbox/inbox/brokers/kafka"
)

func Example() {
	config := wmkafka.SubscriberConfig{
		Brokers:       []string{"localhost:9092"},
		ConsumerGroup: "billing",
		Unmarshaler:   kafka.Unmarshaler{},
	} // for wmkafka.NewSubscriber(config, logger); and inbox.WithEventID(kafka.EventID) for inbox.New

	// What a producer that is not Watermill sent: without an id, and as a CloudEvent.
	bare := &sarama.ConsumerMessage{Topic: "orders", Partition: 2, Offset: 1037}
	event := &sarama.ConsumerMessage{Topic: "orders", Partition: 2, Offset: 1038, Headers: []*sarama.RecordHeader{
		{Key: []byte("ce_id"), Value: []byte("order-7-paid")},
	}}

	for _, record := range []*sarama.ConsumerMessage{bare, event} {
		msg, err := config.Unmarshaler.Unmarshal(record)
		if err != nil {
			panic(err)
		}

		fmt.Println(kafka.EventID(msg), kafka.Coordinates(msg))
	}
	// Output:
	// orders/2/1037 orders/2/1037
	// order-7-paid orders/2/1038
}
