package conformance_test

import (
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
)

// station is a real router on a Pub/Sub in memory. The Pub/Sub sends a nacked message again at once, and its Publish
// returns when every subscriber has acked.
type station struct {
	*message.Router
	pubsub *gochannel.GoChannel
}

func newStation(t testing.TB) *station {
	t.Helper()

	return newStationWith(t, gochannel.Config{})
}

func newStationWith(t testing.TB, config gochannel.Config) *station {
	t.Helper()

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
	require.OK(t, err)

	config.BlockPublishUntilSubscriberAck = true

	return &station{router, gochannel.NewGoChannel(config, watermill.NopLogger{})}
}

var preservingContext = gochannel.Config{PreserveContext: true}

func (s *station) start(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { require.OK(t, s.pubsub.Close()) })
	running.Run(t, s.Router)
}

// publish returns when the message was acked by all handlers of the topic.
func (s *station) publish(t testing.TB, topic string, msg *message.Message) {
	t.Helper()
	running.Publish(t, s.pubsub, topic, msg)
}

// collect subscribes to a topic and returns what arrived so far.
func (s *station) collect(t testing.TB, topic string) (arrived func() []*message.Message) {
	t.Helper()

	return running.Collect(t, s.pubsub, topic)
}

// flaky is a publisher that fails a number of times before it publishes for real.
type flaky struct {
	message.Publisher
	mu       sync.Mutex
	failures int
	err      error
}

func (f *flaky) Publish(topic string, messages ...*message.Message) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.failures > 0 {
		f.failures--

		return f.err
	}

	return f.Publisher.Publish(topic, messages...)
}

// asConsumer adapts a handler whose outputs are not published.
func asConsumer(h message.HandlerFunc) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		_, err := h(msg)

		return err
	}
}

func uuids(messages []*message.Message) []string {
	var all []string
	for _, msg := range messages {
		all = append(all, msg.UUID)
	}

	return all
}
