package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// natsJetStream is the plugin's package nats on JetStream; in its package jetstream, closing races with receiving. As in the
// plugin's own tests, the group "" is none.
func natsJetStream(t *testing.T, m mode) pubSub {
	t.Helper()

	in := m.start(t)
	url := address(t, "nats")

	grouped := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()

		config := nats.JetStreamConfig{
			SubscribeOptions: []natsgo.SubOpt{natsgo.DeliverAll(), natsgo.AckExplicit()},
			AckAsync:         true,
			DurablePrefix:    group,
		}

		pub, err := nats.NewPublisher(nats.PublisherConfig{URL: url, JetStream: config}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		subscribers := 1
		if group != "" {
			subscribers = 2
		}

		sub, err := nats.NewSubscriber(nats.SubscriberConfig{
			URL:              url,
			QueueGroupPrefix: group,
			SubscribersCount: subscribers,
			JetStream:        config,
		}, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}

		return connected(t, pub, in(t, sub, group))
	}

	return pubSub{
		features: tests.Features{
			ConsumerGroups:                      true,
			ExactlyOnceDelivery:                 true,
			GuaranteedOrder:                     m.ordered,
			GuaranteedOrderWithSingleSubscriber: m.ordered,
			Persistent:                          true,
			NewSubscriberReceivesOldMessages:    true,
			RequireSingleInstance:               true, // without a group, every subscription has all messages
			ForceShort:                          short,
		},
		create:  withoutGroup(grouped),
		grouped: grouped,
	}
}

func TestNATSJetStream(t *testing.T) {
	t.Parallel()

	natsJetStream(t, sameTransaction).test(t)
}

func TestNATSJetStreamStored(t *testing.T) {
	t.Parallel()

	natsJetStream(t, storedFromQueues(testdb.PQ)).test(t)
}
