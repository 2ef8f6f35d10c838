package inboxtest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// consumer is a router with one handler behind the inbox.
type consumer struct {
	router *message.Router
	source *source
	ended  chan error
}

func startConsumer(t testing.TB, ib *inbox.Inbox, h message.HandlerFunc) *consumer {
	t.Helper()

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatalf("inboxtest: %v", err)
	}

	c := &consumer{router, &source{messages: make(chan *message.Message)}, make(chan error, 1)}

	router.AddMiddleware(report, ib.Middleware)
	router.AddHandler("inboxtest", "inboxtest_in", c.source, "inboxtest_out", discard{}, h)

	go func() { c.ended <- router.Run(context.Background()) }()

	select {
	case <-router.Running():
	case err := <-c.ended:
		t.Fatalf("inboxtest: running a router: %v", err)
	}

	return c
}

// stop has no errors to report: nothing is in flight.
func (c *consumer) stop() {
	_ = c.router.Close()
	<-c.ended //nolint:errcheck // likewise
}

// delivery is what became of one copy of a message.
type delivery struct {
	outputs []*message.Message
	err     error // of the handler, of the inbox, or a panic; the message was nacked
}

type reportKey struct{}

// deliver sends a copy, as brokers do: nothing that the handler does to a message is seen by the next delivery.
func (c *consumer) deliver(msg *message.Message) delivery {
	reported := make(chan delivery, 1)

	again := msg.Copy()
	again.Payload = bytes.Clone(msg.Payload)
	again.SetContext(context.WithValue(msg.Context(), reportKey{}, reported))

	c.source.messages <- again
	d := <-reported

	select {
	case <-again.Acked():
	case <-again.Nacked():
	}

	return d
}

// report is a middleware that tells deliver about the outcome.
func report(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (outputs []*message.Message, err error) {
		reported, _ := msg.Context().Value(reportKey{}).(chan delivery)

		defer func() {
			if r := recover(); r != nil {
				outputs, err = nil, fmt.Errorf("panic: %v", r)
			}

			reported <- delivery{outputs, err}
		}()

		return h(msg)
	}
}

// source is the broker.
type source struct {
	messages chan *message.Message
	once     sync.Once
}

func (s *source) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.messages, nil
}

func (s *source) Close() error {
	s.once.Do(func() { close(s.messages) })

	return nil
}

// discard publishes nowhere.
type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }
