package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	natsgo "github.com/nats-io/nats.go"
)

var natsFeatures = tests.Features{
	ConsumerGroups:                      true,
	ExactlyOnceDelivery:                 true,
	GuaranteedOrder:                     true,
	GuaranteedOrderWithSingleSubscriber: true,
	Persistent:                          true,
	NewSubscriberReceivesOldMessages:    true,
	RequireSingleInstance:               true, // without a group, every subscription has all messages
	ForceShort:                          short,
}

// natsJetStream is the plugin's package nats on JetStream; in its package jetstream, closing races with receiving. As in the
// plugin's own tests, the group "" is none.
func natsJetStream(t *testing.T) tests.ConsumerGroupPubSubConstructor {
	t.Helper()

	l := newLedger(t)
	url := address(t, "nats")

	return func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
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

		if group == "" {
			return l.wrapFanOut(t, pub, sub)
		}

		return l.wrap(t, pub, sub, group)
	}
}

func TestNATSJetStream(t *testing.T) {
	t.Parallel()

	grouped := natsJetStream(t)
	tests.TestPubSub(t, natsFeatures, withoutGroup(grouped), grouped)
	testClosing(t, natsFeatures, withoutGroup(grouped))
}
