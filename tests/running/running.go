// Package running is what tests do with a real Watermill router and a Pub/Sub in memory.
package running

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/require"
)

// Run runs the router until the test ends, and returns once it runs.
func Run(t testing.TB, router *message.Router) {
	t.Helper()

	stopped := make(chan error, 1)

	go func() { stopped <- router.Run(context.Background()) }()

	require.Await(t, "the router to run", router.Running())
	t.Cleanup(func() {
		require.OK(t, router.Close())
		require.OK(t, require.Await(t, "the router to stop", stopped))
	})
}

// Publish returns when the publisher does, which for a Pub/Sub that waits for acks is when all subscribers have acked,
// after however many deliveries.
func Publish(t testing.TB, publisher message.Publisher, topic string, msg *message.Message) {
	t.Helper()

	done := make(chan error, 1)

	go func() { done <- publisher.Publish(topic, msg) }()

	require.OK(t, require.Await(t, "the ack of "+msg.UUID, done))
}

// Collect subscribes to a topic and returns what arrived so far.
func Collect(t testing.TB, subscriber message.Subscriber, topic string) (arrived func() []*message.Message) {
	t.Helper()

	messages, err := subscriber.Subscribe(context.Background(), topic)
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
