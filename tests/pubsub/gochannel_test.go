package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
)

var goChannelFeatures = tests.Features{
	ExactlyOnceDelivery:   true,
	RequireSingleInstance: true,
	ForceShort:            short,
}

func goChannel(t *testing.T, preserveContext bool) tests.PubSubConstructor {
	t.Helper()

	l := newLedger(t)

	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()

		pubSub := gochannel.NewGoChannel(gochannel.Config{
			OutputChannelBuffer: 10000,
			Persistent:          true,
			PreserveContext:     preserveContext,
		}, watermill.NopLogger{})

		return l.wrapFanOut(t, pubSub, pubSub)
	}
}

func TestGoChannel(t *testing.T) {
	t.Parallel()

	tests.TestPubSub(t, goChannelFeatures, goChannel(t, false), nil)
}

func TestGoChannelThatPreservesContexts(t *testing.T) {
	t.Parallel()

	features := goChannelFeatures
	features.ContextPreserved = true

	tests.TestPubSub(t, features, goChannel(t, true), nil)
}
