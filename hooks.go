package inbox

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill"
)

// Hooks are told what happened to events, for metrics and tests. Every field is optional. They run synchronously on
// the handler's goroutine, after the transaction has ended, with the message's context stripped of its cancellation,
// and may be called concurrently. A hook that panics is logged and has no other effect.
type Hooks struct {
	// Processed is called after the commit, before the outputs are published and the message is acked; for a stored message
	// whose handler used neither the middleware nor InTx, after the ack was recorded.
	Processed func(ctx context.Context, ev Event)
	// Duplicate is called when the event had been processed before, or stored before by a subscriber.
	Duplicate func(ctx context.Context, ev Event)
	// Failed is called when an attempt was given up and the message will be nacked, or is a dead letter: the handler failed
	// or panicked, the event is in flight elsewhere, or the database failed. It is not called for ErrSkip.
	Failed func(ctx context.Context, ev Event, err error)
	// Retried is called before an attempt is repeated in a fresh transaction, with the serialization failure,
	// deadlock or busy error that ended the attempt before. See [WithMaxTxRetries].
	Retried func(ctx context.Context, ev Event, err error)
	// Dead is called when a message became a dead letter, with the error of its last attempt. See [WithMaxAttempts].
	Dead func(ctx context.Context, ev Event, err error)
}

func (ib *Inbox) callHook(ctx context.Context, hook func(context.Context, Event), ev Event) {
	if hook != nil {
		ib.guard(ev, "hook", func() { hook(context.WithoutCancel(ctx), ev) })
	}
}

func (ib *Inbox) callErrorHook(ctx context.Context, hook func(context.Context, Event, error), ev Event, err error) {
	if hook != nil {
		ib.guard(ev, "hook", func() { hook(context.WithoutCancel(ctx), ev, err) })
	}
}

// guard runs code of the user's that must not decide what becomes of the message: the transaction is already over.
func (ib *Inbox) guard(ev Event, what string, fn func()) {
	defer func() {
		if r := recover(); r != nil {
			ib.logger.Error("Inbox "+what+" panicked", fmt.Errorf("panic: %v", r), fieldsOf(ev).Add(watermill.LogFields{
				"stack": string(debug.Stack()),
			}))
		}
	}()

	fn()
}

func fieldsOf(ev Event) watermill.LogFields {
	return watermill.LogFields{
		"consumer":     printable(ev.Consumer),
		"event_source": printable(ev.Source),
		"event_id":     printable(ev.ID),
	}
}
