// Package pubsub_test runs Watermill's universal Pub/Sub suite on brokers with an inbox between them and the reader, in each
// of the inbox's modes. All that the suite expects of a Pub/Sub still holds then, and exactly-once delivery holds in
// addition, although everything is published twice.
package pubsub_test

import (
	"errors"
	"flag"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) {
	flag.Parse()
	runManyAtOnce()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // of the Kafka client
}

// runManyAtOnce sets -parallel unless the caller did: the tests mostly wait, for brokers and for closing to give up on a
// message that is never acked.
func runManyAtOnce() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })

	if !given {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
}

func address(t *testing.T, server string) string {
	t.Helper()

	addr, err := servers.FromEnv(server)
	if err != nil {
		t.Fatal(err)
	}

	return addr
}

// database is for one run of the suite, which may have all of its tests and 50 subscribers in each at once.
func database(t *testing.T, engine testdb.Engine) *testdb.DB {
	t.Helper()

	db := testdb.Open(t, engine)
	db.SetMaxOpenConns(30) // all runs together stay below the 300 of the server
	db.SetMaxIdleConns(10)

	return db
}

// mode is one of the ways to put an inbox between a broker and its readers.
type mode struct {
	// start makes an inbox for one run of the suite.
	start func(t *testing.T) between
	// ordered tells whether a reader gets one message at a time, in the broker's order if that has one.
	ordered bool
}

// between puts the inbox in front of a broker's subscriber. Subscribers that share a consumer are one reader to the inbox. The
// consumer "" is for a broker that hands every message to each subscriber: each is a consumer of its own.
type between func(t *testing.T, sub message.Subscriber, consumer string) message.Subscriber

// pubSub is a broker with an inbox, as the suite wants to know it.
type pubSub struct {
	features tests.Features
	create   tests.PubSubConstructor
	grouped  tests.ConsumerGroupPubSubConstructor // nil without groups
}

func (p pubSub) test(t *testing.T) {
	t.Helper()

	tests.TestPubSub(t, p.features, p.create, p.grouped)

	if p.features.Persistent {
		p.testClosing(t)
	}
}

// testClosing runs the two tests that the suite leaves out for a Pub/Sub that claims exactly-once delivery.
func (p pubSub) testClosing(t *testing.T) {
	t.Helper()

	p.features.ExactlyOnceDelivery = false

	for name, test := range map[string]func(*testing.T, tests.TestContext, tests.PubSubConstructor){
		"TestContinueAfterSubscribeClose/at_least_once": tests.TestContinueAfterSubscribeClose,
		"TestConcurrentClose/at_least_once":             tests.TestConcurrentClose,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, tests.TestContext{TestID: tests.NewTestID(), Features: p.features}, p.create)
		})
	}
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

// connected returns the two ends that a test of the suite has of a Pub/Sub, and closes what the suite forgets to close.
func connected(t *testing.T, pub message.Publisher, sub message.Subscriber) (message.Publisher, message.Subscriber) {
	t.Helper()

	t.Cleanup(func() {
		if err := errors.Join(pub.Close(), sub.Close()); err != nil {
			t.Error(err)
		}
	})

	return twice{pub}, sub
}

// twice publishes everything twice, as a producer does that did not see the first one's confirmation.
type twice struct {
	message.Publisher
}

func (p twice) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		again := msg.Copy()
		again.SetContext(msg.Context())

		if err := p.Publisher.Publish(topic, msg, again); err != nil {
			return err
		}
	}

	return nil
}

// requireOnce fails unless there are events, each with one effect.
func requireOnce(t *testing.T, effects map[string]int) {
	t.Helper()

	if len(effects) == 0 {
		t.Error("nothing went through the inbox")
	}

	for event, n := range effects {
		if n != 1 {
			t.Errorf("%d effects of event %s", n, event)
		}
	}
}
