package inbox

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// routedContext returns a context that knows what a router tells a handler about its messages, the subscribed topic above
// all. A message that is to be stored has not met a router yet, but the functions of WithEventID, WithSource and the like must
// find in it what they find in the middleware, or the event would be another one in the other mode. Watermill can put these
// values into a context only in a router, so a router of one message makes it.
func routedContext(handler, topic string) (context.Context, error) {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}

	found := make(chan context.Context, 1)

	router.AddConsumerHandler(handler, topic, oneMessage{}, func(msg *message.Message) error {
		found <- context.WithoutCancel(msg.Context())

		return nil
	})

	if err := router.Run(context.Background()); err != nil { // until its only handler has stopped
		return nil, err
	}

	select {
	case ctx := <-found:
		return ctx, nil
	default:
		return nil, errors.New("router did not run")
	}
}

// oneMessage is a subscriber to a single, empty message.
type oneMessage struct{}

func (oneMessage) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	messages := make(chan *message.Message, 1)
	messages <- message.NewMessage("", nil)
	close(messages)

	return messages, nil
}

func (oneMessage) Close() error { return nil }

// withRouted adds the values of a routed context to the context of a message, and like a router overrides those that a
// publisher's router left there.
type withRouted struct {
	context.Context
	routed context.Context
}

func (c withRouted) Value(key any) any {
	if v := c.routed.Value(key); v != nil {
		return v
	}

	return c.Context.Value(key)
}
