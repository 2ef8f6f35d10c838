package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Middleware makes the effects of a handler happen once for each event: it claims the event's id, runs the handler and
// commits, all in one transaction, before the router acks. An event that was handled before is acked without running the handler; the
// messages that the handler returned then are returned again, with the same UUIDs, because the router may have
// failed to publish them. The handler finds the transaction with [TxFromContext].
//
// When the handler returns an error or panics, when the claim or the commit fails, or when the process dies, the
// transaction is rolled back with the claim, the message is nacked, and the next delivery runs the handler. The
// handler's error is returned unchanged; [ErrSkip] acks without recording anything. Beyond that the middleware returns
// [ErrNoEventID], [ErrNoConsumer], [ErrAlreadyAcked], [ErrInFlight], [ErrNotMigrated] and the database's errors.
//
// Retry, PoisonQueue, Throttle and Recoverer go outside of it (are added before it), Timeout and CorrelationID inside.
// Adding it both to the router and to a handler is harmless. It is safe for concurrent use.
func (ib *Inbox) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outer := ib.enclosing(msg.Context())
		if outer != nil && outer.msg == msg {
			return h(msg)
		}

		if isClosed(msg.Acked()) || isClosed(msg.Nacked()) {
			return nil, fmt.Errorf("inbox: %w: message %q", ErrAlreadyAcked, printable(msg.UUID))
		}

		ev, err := ib.identify(msg)
		if err != nil {
			return nil, err
		}

		key := KeyOf(ev)
		if outer != nil && outer.key == key {
			return nil, fmt.Errorf("inbox: %w: a copy of event %s is being handled inside its own handler", ErrInFlight, ev)
		}

		returned := false

		defer func() {
			if !returned {
				ib.gaveUp(msg, ev, errPanicked)
			}
		}()

		var outputs []*message.Message

		err = ib.retryTransient(func() (err error) {
			outputs, err = ib.attempt(msg, ev, key, h)

			return err
		}, func(err error) {
			ib.callErrorHook(msg.Context(), ib.hooks.Retried, ev, err)
		})
		returned = true

		if err != nil {
			ib.gaveUp(msg, ev, err)

			return nil, err
		}

		return outputs, nil
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// attempt is one transaction: claim, handler, outputs, commit.
func (ib *Inbox) attempt(msg *message.Message, ev Event, key Key, h message.HandlerFunc) ([]*message.Message, error) {
	ctx, cancel := ib.detach(msg.Context())
	defer cancel()

	s := &scope{inbox: ib, parent: scopeFrom(msg.Context()), msg: msg, event: ev, key: key}

	if outputs, known, err := ib.lookUp(ctx, s); known || err != nil {
		return outputs, err
	}

	if err := ib.repo.begin(ctx, s); err != nil {
		return nil, s.failed(ctx, "beginning a transaction for", err)
	}
	defer s.release()

	fresh, err := ib.repo.claim(ctx, s.tx.Tx, key, ev)
	if err != nil {
		return nil, s.failed(ctx, "claiming", err)
	}

	if !fresh {
		return ib.replay(ctx, s)
	}

	outputs, err := ib.handle(ctx, s, h)
	if err != nil {
		if errors.Is(err, ErrSkip) {
			return nil, nil
		}

		return nil, err
	}

	ib.warnOfEarlyAck(s)

	outputs, err = ib.keepOutputs(ctx, s, outputs)
	if err != nil {
		return nil, s.failed(ctx, "keeping the outputs of", err)
	}

	if err := ib.commit(ctx, s); err != nil {
		return nil, s.failed(ctx, "committing", err)
	}

	s.release()
	ib.committed(s)

	return outputs, nil
}

// handle lends the message to the handler, with the transaction in its context.
func (ib *Inbox) handle(ctx context.Context, s *scope, h message.HandlerFunc) ([]*message.Message, error) {
	takeBack := s.lend(ctx)
	defer takeBack()

	outputs, err := h(s.msg)

	return s.detachAll(outputs), err
}

// gaveUp reports that the message is given back to the broker, if the broker will still have it.
func (ib *Inbox) gaveUp(msg *message.Message, ev Event, err error) {
	ib.callErrorHook(msg.Context(), ib.hooks.Failed, ev, err)

	if isClosed(msg.Acked()) {
		ib.logger.Error("Inbox sees an event lost: its handler acked the message and then failed", err, fieldsOf(ev))
	}
}

// committed runs what waited for the commit.
func (ib *Inbox) committed(s *scope) {
	ctx := context.WithoutCancel(context.WithValue(s.msg.Context(), scopeKey{}, s))

	for _, fn := range s.afterCommit {
		ib.guard(s.event, "AfterCommit function", func() { fn(ctx) })
	}

	ib.callHook(ctx, ib.hooks.Processed, s.event)
}
