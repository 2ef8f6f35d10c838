package brokers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Publishing fails after the commit, with the message lost or with only the answer lost. [MassTransit 3791, 4990]
func TestOutputWhosePublishingFailedIsPublishedAgainWithTheSameUUID(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		out := f.newOutputs(t)
		f.publish(t, 30)

		c := f.consumer()
		c.output = out.Topic
		c.handle = func(msg *message.Message) ([]*message.Message, error) {
			return invoice(msg, f.db.Table("effects"))
		}

		flaky := &flakyPublisher{failed: map[string]bool{}}
		c.publish = func(pub message.Publisher) message.Publisher {
			return &flakyPublisherOf{Publisher: pub, flakyPublisher: flaky}
		}
		stop := c.start(t)

		out.await(t, f.events)

		for _, event := range f.events {
			await(t, "the redelivery of "+event, func() bool { return f.told.duplicatesOf(event) > 0 })
		}

		stop()
		f.requireOnce(t)
		f.requireRecordedUUIDs(t, out)
	})
}

func TestProcessKilledBetweenCommitAndPublishLeavesItsOutputToTheNext(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, b *broker) {
		f := newFixture(t, b)
		out := f.newOutputs(t)
		f.publishFor(t, 30)

		for _, after := range []int{5, 10} {
			p := f.startProcess(t, afterCommit, after, out)
			event := receive(t, "a commit", p.hanging)
			p.kill(t)

			if uuids := out.of(event); len(uuids) > 0 {
				t.Errorf("the output of %s was published before the kill", event)
			}
		}

		p := f.startProcess(t, nowhere, 0, out)
		out.await(t, f.events)
		p.stop(t)
		f.requireOnce(t)
		f.requireRecordedUUIDs(t, out)
	})
}

// invoice handles an event by returning a message, with a new UUID whenever it runs, and by recording that UUID.
func invoice(msg *message.Message, effects string) ([]*message.Message, error) {
	output := message.NewMessage(watermill.NewUUID(), slices.Clone(msg.Payload))

	return []*message.Message{output}, record(msg, effects, output.UUID)
}

// flakyPublisher fails for the first time with every event: alternately before the broker has the message and after it.
type flakyPublisher struct {
	mu     sync.Mutex
	failed map[string]bool
}

type flakyPublisherOf struct {
	message.Publisher
	*flakyPublisher
}

func (p *flakyPublisherOf) Publish(topic string, messages ...*message.Message) error {
	p.mu.Lock()
	event := string(messages[0].Payload)
	fails := !p.failed[event]
	p.failed[event] = true
	reached := len(p.failed)%2 == 0
	p.mu.Unlock()

	switch {
	case !fails:
		return p.Publisher.Publish(topic, messages...)
	case reached:
		return errors.Join(p.Publisher.Publish(topic, messages...), errors.New("the answer is lost"))
	default:
		return errors.New("the message is lost")
	}
}

// outputs is the topic that a handler's messages go to, and what was received from it.
type outputs struct {
	route

	mu    sync.Mutex
	uuids map[string][]string
}

// newOutputs makes a topic for outputs and reads it until the test ends. Where the broker lives in the consumer's
// process, that has to read.
func (f *fixture) newOutputs(t *testing.T) *outputs {
	t.Helper()

	out := &outputs{route: f.route, uuids: map[string][]string{}}

	if !f.broker().inProcess() {
		out.route = newRoute(t, f.broker(), f.db)
	} else {
		out.Topic = "invoices"
	}

	stop, err := collect(out.route, f.log, out.add)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(stop)

	return out
}

// collect reads a topic of outputs.
func collect(r route, log watermill.LoggerAdapter, add func(event, uuid string)) (stop func(), err error) {
	sub, err := r.subscriber(log)
	if err != nil {
		return nil, err
	}

	messages, err := sub.Subscribe(context.Background(), r.Topic)
	if err != nil {
		return nil, errors.Join(err, sub.Close())
	}

	done := make(chan struct{})

	go func() {
		defer close(done)

		for msg := range messages {
			add(string(msg.Payload), msg.UUID)
			msg.Ack()
		}
	}()

	return func() {
		_ = sub.Close()
		<-done
	}, nil
}

func (o *outputs) add(event, uuid string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	o.uuids[event] = append(o.uuids[event], uuid)
}

// of returns the UUIDs of the messages received for an event.
func (o *outputs) of(event string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()

	return slices.Clone(o.uuids[event])
}

func (o *outputs) await(t *testing.T, events []string) {
	t.Helper()

	for _, event := range events {
		await(t, "the output of "+event, func() bool { return len(o.of(event)) > 0 })
	}
}

// requireRecordedUUIDs fails if a message has another UUID than the handler gave to it when it committed.
func (f *fixture) requireRecordedUUIDs(t *testing.T, out *outputs) {
	t.Helper()

	for _, event := range f.events {
		for _, uuid := range out.of(event) {
			if f.db.Int(t, "SELECT count(*) FROM "+f.db.Table("effects")+" WHERE event = $1 AND note = $2", event, uuid) != 1 {
				t.Errorf("an output of %s has the unknown UUID %s", event, uuid)
			}
		}
	}
}
