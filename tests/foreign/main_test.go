// Package foreign_test shows that an inbox handles messages of producers that are not Watermill: published by a plain
// client of each broker, read by Watermill's subscriber with the unmarshaler of brokers/amqp, brokers/kafka or
// brokers/nats, handled by a router over PostgreSQL. It also holds what only one broker does: dead letters and
// delivery counts in RabbitMQ, other groups in Kafka, other consumers and repeated headers in NATS.
package foreign_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Updates sarama's metrics for as long as the process lives.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}
