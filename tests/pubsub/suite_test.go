package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // of the Kafka client
}

func address(t *testing.T, server string) string {
	t.Helper()

	addr, err := servers.FromEnv(server)
	if err != nil {
		t.Fatal(err)
	}

	return addr
}

// inGroup has one group for each test of the suite, so that joining one does not disturb the others.
func inGroup(create tests.ConsumerGroupPubSubConstructor) tests.PubSubConstructor {
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()

		return create(t, t.Name())
	}
}

func withoutGroup(create tests.ConsumerGroupPubSubConstructor) tests.PubSubConstructor {
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()

		return create(t, "")
	}
}

// testClosing runs the two tests that the suite leaves out for a Pub/Sub that claims exactly-once delivery.
func testClosing(t *testing.T, features tests.Features, create tests.PubSubConstructor) {
	t.Helper()

	features.ExactlyOnceDelivery = false

	for name, test := range map[string]func(*testing.T, tests.TestContext, tests.PubSubConstructor){
		"TestContinueAfterSubscribeClose/at_least_once": tests.TestContinueAfterSubscribeClose,
		"TestConcurrentClose/at_least_once":             tests.TestConcurrentClose,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, create)
		})
	}
}
