//go:build stress

package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

// The tag also makes the suite itself more patient. How often it runs is in its variable STRESS_TEST_COUNT, 10 by default.
const short = false

func TestGoChannelUnderStress(t *testing.T) {
	t.Parallel()

	tests.TestPubSubStressTest(t, goChannelFeatures, goChannel(t, false), nil)
}

func TestRabbitMQUnderStress(t *testing.T) {
	t.Parallel()

	grouped := rabbitMQ(t)
	tests.TestPubSubStressTest(t, rabbitMQFeatures, inGroup(grouped), grouped)
}

func TestKafkaUnderStress(t *testing.T) {
	t.Parallel()

	grouped := kafkaGroups(t)
	tests.TestPubSubStressTest(t, kafkaFeatures, inGroup(grouped), grouped)
}

func TestNATSJetStreamUnderStress(t *testing.T) {
	t.Parallel()

	grouped := natsJetStream(t)
	tests.TestPubSubStressTest(t, natsFeatures, withoutGroup(grouped), grouped)
}
