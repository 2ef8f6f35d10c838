//go:build stress

package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// The tag also makes the suite itself more patient. How often it runs is in its variable STRESS_TEST_COUNT, 10 by default.
const short = false

func (p pubSub) stress(t *testing.T) {
	t.Helper()

	tests.TestPubSubStressTest(t, p.features, p.create, p.grouped)
}

func TestGoChannelUnderStress(t *testing.T) {
	t.Parallel()

	goChannel(t, sameTransaction, false).stress(t)
}

func TestGoChannelStoredUnderStress(t *testing.T) {
	t.Parallel()

	goChannel(t, stored(testdb.PQ), false).stress(t)
}

func TestRabbitMQUnderStress(t *testing.T) {
	t.Parallel()

	rabbitMQ(t, sameTransaction).stress(t)
}

func TestRabbitMQStoredUnderStress(t *testing.T) {
	t.Parallel()

	rabbitMQ(t, storedFromQueues(testdb.PQ)).stress(t)
}

func TestKafkaUnderStress(t *testing.T) {
	t.Parallel()

	kafkaGroups(t, sameTransaction).stress(t)
}

func TestKafkaStoredUnderStress(t *testing.T) {
	t.Parallel()

	kafkaGroups(t, stored(testdb.PQ)).stress(t)
}

func TestNATSJetStreamUnderStress(t *testing.T) {
	t.Parallel()

	natsJetStream(t, sameTransaction).stress(t)
}

func TestNATSJetStreamStoredUnderStress(t *testing.T) {
	t.Parallel()

	natsJetStream(t, storedFromQueues(testdb.PQ)).stress(t)
}
