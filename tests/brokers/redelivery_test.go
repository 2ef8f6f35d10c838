package brokers

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

func TestEventWhoseHandlerFailedFirstIsHandledOnRedelivery(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		f.publish(t, 40)

		var attempted sync.Map

		c := f.consumer()
		c.handle = func(msg *message.Message) ([]*message.Message, error) {
			if err := record(msg, f.db.Table("effects"), ""); err != nil {
				return nil, err
			}

			if _, again := attempted.LoadOrStore(string(msg.Payload), true); !again {
				return nil, errors.New("first attempt")
			}

			return nil, nil
		}
		stop := c.start(t)

		f.awaitEffects(t, 40)
		stop()
		f.requireOnce(t)

		for _, event := range f.events {
			if f.told.failuresOf(event) == 0 {
				t.Errorf("%s did not fail first", event)
			}
		}
	})
}

// A broker that did not get the ack delivers again, what the connection was lost over included.
func TestEventWhoseAckWasLostIsNotHandledAgain(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)

		for range 3 {
			f.publish(t, 12)
			f.awaitDuplicateOf(t, f.loseAckAfter(t, 5))
		}

		stop := f.consumer().start(t)
		f.awaitEffects(t, 36)
		stop()
		f.requireOnce(t)
	})
}

// loseAckAfter runs a consumer that handles some events and whose connection closes then, between the commit and
// the ack of another. It returns that event.
func (f *fixture) loseAckAfter(t *testing.T, handled int) (event string) {
	t.Helper()

	handled += f.processed()
	committed := make(chan string)
	closed := make(chan struct{})
	done := make(chan struct{})

	sub, err := f.subscriber(f.log)
	if err != nil {
		t.Fatal(err)
	}

	c := f.consumer()
	c.around = []message.HandlerMiddleware{func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			outputs, err := h(msg)
			if err != nil || f.processed() <= handled {
				return outputs, err
			}

			select {
			case committed <- string(msg.Payload):
			case <-closed:
			}

			<-closed // whatever else is in flight waits too

			return outputs, err
		}
	}}

	go func() {
		defer close(done)

		if err := c.serve(context.Background(), sub); err != nil {
			t.Errorf("router: %v", err)
		}
	}()

	event = receive(t, "a commit", committed)

	if err := sub.Close(); err != nil {
		t.Error(err)
	}

	close(closed)
	<-done

	return event
}

func (f *fixture) processed() int {
	processed, _, _ := f.told.sums()

	return processed
}

// awaitDuplicateOf runs a consumer until it was given an event that is handled already.
func (f *fixture) awaitDuplicateOf(t *testing.T, event string) {
	t.Helper()

	before := f.told.duplicatesOf(event)

	stop := f.consumer().start(t)
	defer stop()

	await(t, "the redelivery of "+event, func() bool { return f.told.duplicatesOf(event) > before })
}

// Routers cancel the messages in flight when they close; what was about to be finished is finished, and the rest is
// left to the next process. [watermill 568, 669]
func TestRouterClosedWhileHandlersRunLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		f.publish(t, 40)

		for _, handled := range []int{5, 15, 25} {
			event := f.closeDuring(t, handled)
			if n := f.db.Effects(t)[event]; n != 1 {
				t.Errorf("%s, whose handler was about to finish, has %d effects after the router closed", event, n)
			}
		}

		stop := f.consumer().start(t)
		f.awaitEffects(t, 40)
		stop()
		f.requireOnce(t)
	})
}

// closeDuring runs a consumer whose router closes while an event is being handled. It returns the event.
func (f *fixture) closeDuring(t *testing.T, handled int) (event string) {
	t.Helper()

	running := make(chan string)

	c := f.consumer()
	c.handle = func(msg *message.Message) ([]*message.Message, error) {
		err := record(msg, f.db.Table("effects"), "")
		if err != nil || f.processed() < handled {
			return nil, err
		}

		select {
		case running <- string(msg.Payload):
			<-msg.Context().Done() // the router closes
		case <-msg.Context().Done():
		}

		return nil, nil
	}
	stop := c.start(t)
	event = receive(t, "a running handler", running)
	stop()

	return event
}
