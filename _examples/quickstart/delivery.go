package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// How the events are delivered.
const (
	copies      = 3                    // of every event
	burst       = 8                    // messages sent at the same moment
	mostUnacked = 64                   // what the broker has under way at most
	pause       = 5 * time.Millisecond // per message
	longestRun  = 4 * time.Second      // of all pauses
)

// schedule returns every event several times and out of order: two copies close together, so that they are often handled at
// the same time, and one at any later moment.
func schedule(lines []orderEvent) []orderEvent {
	type slot struct {
		event orderEvent
		due   float64
	}

	const jitter = 12 // messages

	var (
		slots []slot
		dice  = rand.New(rand.NewPCG(1, 2)) // the same order in every run
	)

	for i, event := range lines {
		due := float64(i) + jitter*dice.Float64()

		for _, delay := range [copies]float64{0, 1, float64(len(lines))} {
			slots = append(slots, slot{event, due + delay*dice.Float64()})
		}
	}

	slices.SortStableFunc(slots, func(a, b slot) int { return cmp.Compare(a.due, b.due) })

	events := make([]orderEvent, len(slots))
	for i, s := range slots {
		events[i] = s.event
	}

	return events
}

// deliver publishes the events in bursts, at a pace that leaves something to see.
func deliver(ctx context.Context, b *broker, events []orderEvent) error {
	perMessage := min(pause, longestRun/time.Duration(2*len(events)+1)) // this is called twice

	for together := range slices.Chunk(events, burst) {
		if err := publish(b, together); err != nil {
			return err
		}

		if err := wait(ctx, perMessage*time.Duration(len(together))); err != nil {
			return err
		}

		if err := drain(ctx, b, mostUnacked); err != nil {
			return err
		}
	}

	return nil
}

// publish sends a new message for each event, like a relay that crashed and publishes again. What tells that two of them
// are one event is their metadata.
func publish(b *broker, events []orderEvent) error {
	for _, event := range events {
		payload, err := json.Marshal(event)
		if err != nil {
			return err
		}

		msg := message.NewMessage(watermill.NewUUID(), payload)
		msg.Metadata.Set("event_id", event.ID)
		msg.Metadata.Set("event_source", event.Source)
		msg.Metadata.Set("event_type", event.Type)

		if err := b.Publish(ordersTopic, msg); err != nil {
			return err
		}
	}

	return nil
}

// drain waits until no more than the given number of messages is unacked.
func drain(ctx context.Context, b *broker, most int) error {
	const patience = 20 * time.Second

	before, since := 0, time.Now()

	for {
		acked, unacked := b.progress()
		if unacked <= most {
			return nil
		}

		if acked > before {
			before, since = acked, time.Now()
		}

		if time.Since(since) > patience {
			return fmt.Errorf("%d messages are unacked, and none was acked for %s", unacked, patience)
		}

		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errInjected = errors.New("failed on purpose")

// breakHandlers is a middleware that lets handlers fail after they have done their work: every eighth run returns an
// error, and one panics.
func breakHandlers(n *counters) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			run := n.runs.Add(1)
			outputs, err := h(msg)

			switch {
			case err != nil:
				return nil, err
			case run == 3:
				n.failed.Add(1)
				panic(errInjected)
			case run%8 == 1:
				n.failed.Add(1)
				return nil, errInjected
			default:
				return outputs, nil
			}
		}
	}
}

// brokenPublisher fails now and then: the handler's transaction is committed, but its receipt does not get out. The very
// first receipt is one of those.
type brokenPublisher struct {
	message.Publisher
	n *counters
}

func (p brokenPublisher) Publish(topic string, messages ...*message.Message) error {
	if p.n.publishes.Add(1)%50 == 1 {
		return errInjected
	}

	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}

	p.n.sent.Add(int64(len(messages)))

	return nil
}
