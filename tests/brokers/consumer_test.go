package brokers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// consumer is a service with one handler behind an inbox.
type consumer struct {
	route

	inbox  *inbox.Inbox
	handle message.HandlerFunc
	// output is the topic for what the handler returns, on the same broker; "" for a handler that returns nothing.
	output string
	// publish wraps the publisher of outputs. Optional.
	publish func(message.Publisher) message.Publisher
	// around are the middlewares outside of the inbox.
	around []message.HandlerMiddleware
	log    watermill.LoggerAdapter
}

// start runs the service until the test ends or calls stop, which returns when its router has closed.
func (c *consumer) start(t *testing.T) (stop func()) {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})

	go func() {
		defer close(done)
		c.supervise(ctx)
	}()

	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)

	return stop
}

// supervise starts the service again whenever it ends by itself, as a process manager does. It returns when ctx ends.
func (c *consumer) supervise(ctx context.Context) {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()

	for ctx.Err() == nil {
		if err := c.run(ctx); err != nil {
			c.log.Error("Consumer ended", err, nil)
		}

		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// run is one life of the service, from connecting to the broker to the end of the router.
func (c *consumer) run(ctx context.Context) (err error) {
	sub, err := c.subscriber(c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()

	return c.serve(ctx, sub)
}

// serve runs a router on a subscriber until ctx ends, which closes the router, or the subscription does.
func (c *consumer) serve(ctx context.Context, sub message.Subscriber) error {
	router, err := message.NewRouter(message.RouterConfig{}, c.log)
	if err != nil {
		return err
	}

	router.AddMiddleware(c.around...)
	router.AddMiddleware(c.inbox.Middleware)

	const handler = "billing" // the inbox's consumer

	if c.output == "" {
		router.AddConsumerHandler(handler, c.Topic, sub, func(msg *message.Message) error {
			_, err := c.handle(msg)

			return err
		})
	} else {
		pub, err := c.publisher(c.log)
		if err != nil {
			return err
		}
		defer pub.Close() //nolint:errcheck // the router closes it too

		if c.publish != nil {
			pub = c.publish(pub)
		}

		router.AddHandler(handler, c.Topic, sub, c.output, pub, c.handle)
	}

	ended := make(chan struct{})
	closed := make(chan struct{})

	go func() {
		defer close(closed)

		select {
		case <-ctx.Done():
		case <-ended:
			return
		}

		select {
		case <-router.Running(): // a router must not be closed while it starts
			_ = router.Close()
		case <-ended:
		}
	}()

	err = router.Run(context.WithoutCancel(ctx))

	close(ended)
	<-closed

	return err
}
