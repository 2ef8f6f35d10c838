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

		d := ib.deliveryOf(msg)

		ev, err := ib.identifyDelivered(msg, d)
		if err != nil {
			return nil, err
		}

		key := KeyOf(ev)
		if outer != nil && outer.key == key {
			return nil, fmt.Errorf("inbox: %w: a copy of event %s is being handled inside its own handler", ErrInFlight, ev)
		}

		return ib.handleEvent(task{msg: msg, event: ev, key: key, delivery: d}, h)
	}
}

// task is an event that a message asks to be handled.
type task struct {
	msg      *message.Message
	event    Event
	key      Key
	delivery *delivery // of a stored message, or nil
}

// handleEvent makes attempts until one is committed or fails for good.
func (ib *Inbox) handleEvent(t task, h message.HandlerFunc) (outputs []*message.Message, err error) {
	c, err := ib.startCounting(t)
	if err != nil || c.dead {
		return nil, err
	}

	returned := false

	defer func() {
		defer c.takeBack()

		if returned {
			return
		}

		ib.gaveUp(t, errPanicked)

		if c.isLast(errPanicked) {
			err = c.bury(fmt.Errorf("%w: %v", errPanicked, recover()))
		}
	}()

	err = ib.retryTransient(func() (err error) {
		outputs, err = ib.attempt(t, c, h)

		return err
	}, func(err error) {
		ib.callErrorHook(t.msg.Context(), ib.hooks.Retried, t.event, err)
	})
	returned = true

	if err == nil {
		return outputs, nil
	}

	ib.gaveUp(t, err)

	if c.isLast(err) {
		return nil, c.bury(err)
	}

	return nil, err
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
func (ib *Inbox) attempt(t task, c *count, h message.HandlerFunc) ([]*message.Message, error) {
	ctx, cancel := ib.detach(t.msg.Context())
	defer cancel()

	s := &scope{task: t, inbox: ib, parent: scopeFrom(t.msg.Context())}

	if outputs, known, err := ib.lookUp(ctx, s); known || err != nil {
		return outputs, err
	}

	if err := ib.repo.begin(ctx, s); err != nil {
		return nil, s.failed(ctx, "beginning a transaction for", err)
	}
	defer s.release()

	fresh, err := ib.claim(ctx, s)
	if err != nil {
		return nil, s.failed(ctx, "claiming", err)
	}

	if !fresh {
		return ib.replay(ctx, s)
	}

	c.started()

	s.delivery.runs(s)
	defer s.delivery.runs(nil)

	outputs, err := ib.handle(ctx, s, h)
	if err != nil {
		if errors.Is(err, ErrSkip) {
			s.delivery.skip()

			return nil, nil
		}

		return nil, err
	}

	c.returned()
	ib.warnOfEarlyAck(s)

	outputs, err = ib.keepOutputs(ctx, s, outputs)
	if err != nil {
		return nil, s.failed(ctx, "keeping the outputs of", err)
	}

	if s.takenOver && len(outputs) == 0 {
		if err := ib.repo.forgetMessage(ctx, s.tx.Tx, s.key); err != nil {
			return nil, s.failed(ctx, "removing the stored message of", err)
		}
	}

	if err := c.forget(ctx, s.tx.Tx); err != nil {
		return nil, s.failed(ctx, "forgetting the failures of", err)
	}

	if err := ib.commit(ctx, s); err != nil {
		return nil, s.failed(ctx, "committing", err)
	}

	s.release()
	s.delivery.commit(len(outputs) > 0)
	c.succeeded()
	ib.committed(s)

	return outputs, nil
}

// claim makes the event this transaction's: by writing its row or, for a stored message, by completing it under its lease.
func (ib *Inbox) claim(ctx context.Context, s *scope) (fresh bool, err error) {
	if s.delivery != nil {
		return ib.repo.hold(ctx, s.tx.Tx, s.delivery.owner, s.delivery.fence)
	}

	fresh, err = ib.repo.claim(ctx, s.tx.Tx, s.key, s.event)
	if err != nil || fresh {
		return fresh, err
	}

	s.takenOver, err = ib.repo.takeOver(ctx, s.tx.Tx, s.key)

	return s.takenOver, err
}

// handle lends the message to the handler, with the transaction in its context.
func (ib *Inbox) handle(ctx context.Context, s *scope, h message.HandlerFunc) ([]*message.Message, error) {
	takeBack := s.lend(ctx)
	defer takeBack()

	outputs, err := h(s.msg)

	return s.detachAll(outputs), err
}

// gaveUp reports that an attempt failed, and with it the event if the handler has told the broker otherwise.
func (ib *Inbox) gaveUp(t task, err error) {
	t.delivery.hasFailed(err)
	ib.callErrorHook(t.msg.Context(), ib.hooks.Failed, t.event, err)

	ib.reportEarlyAck(t.msg, t.event, err)
}

// committed runs what waited for the commit.
func (ib *Inbox) committed(s *scope) {
	ctx := context.WithoutCancel(context.WithValue(s.msg.Context(), scopeKey{}, s))

	for _, fn := range s.afterCommit {
		ib.guard(s.event, "AfterCommit function", func() { fn(ctx) })
	}

	ib.callHook(ctx, ib.hooks.Processed, s.event)
}
