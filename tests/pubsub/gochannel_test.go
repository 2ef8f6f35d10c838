package pubsub_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// goChannel may preserve contexts only if messages are not stored: a table does not keep them.
func goChannel(t *testing.T, m mode, preserveContext bool) pubSub {
	t.Helper()

	in := m.start(t)

	return pubSub{
		features: tests.Features{
			ExactlyOnceDelivery:   true,
			RequireSingleInstance: true,
			ContextPreserved:      preserveContext,
			ForceShort:            short,
		},
		create: func(t *testing.T) (message.Publisher, message.Subscriber) {
			t.Helper()

			channel := gochannel.NewGoChannel(gochannel.Config{
				OutputChannelBuffer: 10000,
				Persistent:          true,
				PreserveContext:     preserveContext,
			}, watermill.NopLogger{})

			return connected(t, channel, in(t, channel, ""))
		},
	}
}

func TestGoChannel(t *testing.T) {
	t.Parallel()

	goChannel(t, sameTransaction, false).test(t)
}

func TestGoChannelThatPreservesContexts(t *testing.T) {
	t.Parallel()

	goChannel(t, sameTransaction, true).test(t)
}

func TestGoChannelStored(t *testing.T) {
	t.Parallel()

	goChannel(t, stored(testdb.PQ), false).test(t)
}

func TestGoChannelStoredOnSQLite(t *testing.T) {
	t.Parallel()

	goChannel(t, stored(testdb.SQLite), false).test(t)
}
