package conformance_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox/tests/require"
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

	stopped := make(chan error, 1)

	go func() { stopped <- s.Run(context.Background()) }()

	require.Await(t, "the router to run", s.Running())
	t.Cleanup(func() {
		require.OK(t, s.Close())
		require.OK(t, require.Await(t, "the router to stop", stopped))
		require.OK(t, s.pubsub.Close())
	})
}

// publish returns when the message was acked by all handlers of the topic.
func (s *station) publish(t testing.TB, topic string, msg *message.Message) {
	t.Helper()

	done := make(chan error, 1)

	go func() { done <- s.pubsub.Publish(topic, msg) }()

	require.OK(t, require.Await(t, "the ack of "+msg.UUID, done))
}

// collect subscribes to a topic and returns what arrived so far.
func (s *station) collect(t testing.TB, topic string) (arrived func() []*message.Message) {
	t.Helper()

	messages, err := s.pubsub.Subscribe(context.Background(), topic)
	require.OK(t, err)

	var (
		mu  sync.Mutex
		all []*message.Message
	)

	go func() {
		for msg := range messages {
			mu.Lock()
			all = append(all, msg)
			mu.Unlock()
			msg.Ack()
		}
	}()

	return func() []*message.Message {
		mu.Lock()
		defer mu.Unlock()

		return slices.Clone(all)
	}
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
