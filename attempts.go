package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// WithMaxAttempts sets after how many failed attempts a message becomes a dead letter: it is kept with its payload and
// its last error, acked, and can be listed, requeued and discarded ([Inbox.Dead], [Inbox.Requeue], [Inbox.Discard]). At
// least 1.
//
// As an option of [New] it is about same-transaction mode, where it is off by default: a failing message is nacked for ever,
// or until a PoisonQueue outside of the inbox takes it. With it, failures of handlers are counted in a transaction of
// their own, and events that do not fail cost nothing. What fails because of the database, or while the message's
// context is cancelled, does not count. It is also the default of subscribers.
//
// As an option of [Inbox.Subscriber] it counts how often a message was leased, so that one that kills the process is
// counted, too. Default 20.
func WithMaxAttempts(n int) interface {
	Option
	SubscriberOption
} {
	return maxAttempts(n)
}

type maxAttempts int

func (n maxAttempts) check() error {
	if n < 1 {
		return fmt.Errorf("WithMaxAttempts(%d) must be positive", int(n))
	}

	return nil
}

func (n maxAttempts) apply(c *config) error {
	c.maxAttempts = int(n)

	return n.check()
}

func (n maxAttempts) applySubscriber(s *subscriberConfig) error {
	s.maxAttempts = int(n)

	return n.check()
}

// WithCrashGuard makes [WithMaxAttempts] of same-transaction mode, which it needs, count each attempt before it begins and not
// when it has failed, so that a message that kills the process becomes a dead letter as well. It costs each attempt a
// transaction of its own, and the commit the removal of the count. Deliveries of one event at the same time count each, and
// so do all messages that were in flight when one of them killed the process: requeue those that died with it. Off by default.
func WithCrashGuard() Option {
	return optionFunc(func(c *config) error {
		c.crashGuard = true

		return nil
	})
}

// count is the number of attempts at one event in same-transaction mode. Nothing is counted by a nil one.
type count struct {
	task

	inbox    *Inbox
	attempts int  // as counted beforehand by WithCrashGuard, 0 when it counted nothing
	began    bool // the handler was called
	ended    bool // and returned nil
	kept     bool // what was counted beforehand is right, or gone
	dead     bool
	last     int // attempts when the last one failed
}

// startCounting counts the attempt that is about to begin, where there is a crash guard.
func (ib *Inbox) startCounting(t task) (*count, error) {
	c := &count{task: t, inbox: ib}
	if !c.counts() || !ib.crashGuard {
		return c, nil
	}

	var err error
	if c.attempts, err = c.add(ib.repo.queries.countAttempt); err != nil {
		return c, fmt.Errorf("inbox: WithCrashGuard: counting an attempt at event %s: %w", t.event, err)
	}

	if c.attempts <= ib.maxAttempts {
		return c, nil
	}

	c.last = c.attempts - 1
	c.dead, c.kept = true, true

	return c, c.bury(fmt.Errorf("out of attempts after %d: the last has no result on record, as when the process dies", c.last))
}

func (c *count) counts() bool { return c.inbox.maxAttempts > 0 && c.delivery == nil }

func (c *count) started() { c.began, c.ended = true, false }

func (c *count) returned() { c.ended = true }

// isLast counts a failure, if it was the handler's, and reports whether it was the last one that is allowed.
func (c *count) isLast(err error) bool {
	if !c.counts() || !c.isHandlers(err) {
		return false
	}

	c.kept = true
	c.last = c.attempts

	if !c.inbox.crashGuard {
		var err error
		if c.last, err = c.add(c.inbox.repo.queries.countFailure); err != nil {
			c.inbox.logger.Error("Inbox could not count a failure", err, fieldsOf(c.event))

			return false
		}
	}

	c.inbox.failing.add(c.key)

	return c.last >= c.inbox.maxAttempts
}

// isHandlers tells a handler's failures from those of the database and of a shutdown.
func (c *count) isHandlers(err error) bool {
	engine := c.inbox.engine

	switch {
	case !c.began, c.msg.Context().Err() != nil, engine.isTransient(err), engine.isOutage(err), errors.Is(err, driver.ErrBadConn):
		return false
	default:
		return !c.ended || !isConnectionLost(err)
	}
}

func isConnectionLost(err error) bool {
	var network net.Error

	return errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &network)
}

func (c *count) add(query string) (attempts int, err error) {
	ctx, cancel := c.inbox.detach(c.msg.Context())
	defer cancel()

	err = c.inbox.retryTransient(func() (err error) {
		attempts, err = c.inbox.repo.count(ctx, query, c.key)

		return err
	}, nil)

	return attempts, err
}

// takeBack corrects what was counted beforehand of an attempt that did not fail by the handler's fault.
func (c *count) takeBack() {
	if c.attempts == 0 || c.kept {
		return
	}

	ctx, cancel := c.inbox.detach(c.msg.Context())
	defer cancel()

	err := c.inbox.retryTransient(func() error { return c.inbox.repo.uncount(ctx, c.key) }, nil)
	if err != nil {
		c.inbox.logger.Error("Inbox could not correct the number of attempts", err, fieldsOf(c.event))
	}
}

// forget removes the count with the commit of the attempt that succeeded.
func (c *count) forget(ctx context.Context, tx *sql.Tx) error {
	if !c.counts() || !c.inbox.crashGuard && !c.inbox.failing.has(c.key) {
		return nil
	}

	_, err := c.inbox.repo.exec(ctx, tx, c.inbox.repo.queries.forgetFailure, c.inbox.repo.engine.keyArg(c.key))

	return err
}

// succeeded is called after the commit.
func (c *count) succeeded() {
	c.kept = true
	c.inbox.failing.remove(c.key)
}

// bury makes the message a dead letter. When it cannot, the error keeps the message with the broker.
func (c *count) bury(cause error) error {
	ctx, cancel := c.inbox.detach(c.msg.Context())
	defer cancel()

	topic := message.SubscribeTopicFromCtx(c.msg.Context())
	letter := deadLetter{
		task:     c.task,
		queue:    queueOf(c.event.Consumer, topic),
		attempts: c.last,
		err:      printableUpTo(cause.Error(), maxLastError),
		data:     appendStored(nil, c.event, topic, c.msg),
	}

	var buried, dead bool

	err := c.inbox.retryTransient(func() (err error) {
		buried, dead, err = c.inbox.repo.bury(ctx, letter)

		return err
	}, nil)

	switch {
	case err != nil:
		return errors.Join(cause, fmt.Errorf("inbox: keeping event %s as a dead letter: %w", c.event, err))
	case !dead: // it was handled meanwhile, or is in somebody's hands
		return cause
	}

	c.inbox.failing.remove(c.key)

	if !buried { // another delivery of the event did it
		return nil
	}

	c.inbox.logger.Error("Inbox keeps a message as a dead letter", cause, fieldsOf(c.event))
	c.inbox.callErrorHook(c.msg.Context(), c.inbox.hooks.Dead, c.event, cause)

	return nil
}

// failing remembers events that failed in this process, so that their counts can be removed when they succeed. It forgets
// when there are too many; those counts are swept up by a later failure.
type failing struct {
	mu   sync.Mutex
	keys map[Key]struct{}
}

const maxFailing = 10_000

func (f *failing) add(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.keys == nil || len(f.keys) >= maxFailing {
		f.keys = make(map[Key]struct{})
	}

	f.keys[key] = struct{}{}
}

func (f *failing) has(key Key) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	_, ok := f.keys[key]

	return ok
}

func (f *failing) remove(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()

	delete(f.keys, key)
}

// count adds to an event's number of attempts and returns it, 0 for an event that is on record. It also removes some counts of
// events that have been handled since.
func (r *repository) count(ctx context.Context, query string, key Key) (attempts int, err error) {
	err = r.inTx(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, query, r.engine.keyArg(key)).Scan(&attempts)
		if errors.Is(err, sql.ErrNoRows) {
			attempts, err = 0, nil
		}

		if err == nil && query == r.queries.countFailure {
			_, err = tx.ExecContext(ctx, r.queries.sweepFailures)
		}

		if err != nil {
			return r.explain(ctx, tx, err)
		}

		return nil
	})

	return attempts, err
}

// uncount takes one attempt back.
func (r *repository) uncount(ctx context.Context, key Key) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		for _, query := range r.queries.uncount {
			if _, err := r.exec(ctx, tx, query, r.engine.keyArg(key)); err != nil {
				return err
			}
		}

		return nil
	})
}

type deadLetter struct {
	task

	queue    Key
	attempts int
	err      string
	data     []byte
}

// bury reports whether it made the event a dead letter, and whether it is one. It is none when it was processed, or is being
// handled as a stored message.
func (r *repository) bury(ctx context.Context, l deadLetter) (buried, dead bool, err error) {
	key := r.engine.keyArg(l.key)

	err = r.inTx(ctx, func(tx *sql.Tx) error {
		_, err := r.exec(ctx, tx, r.queries.buryEvent,
			key, printable(l.event.Consumer), printable(l.event.Source), printable(l.event.ID), printable(l.event.Type))
		if err != nil {
			return err
		}

		affected, err := r.exec(ctx, tx, r.queries.buryMessage, key, r.engine.keyArg(l.queue), l.attempts, l.err, l.data)
		if err != nil {
			return err
		}

		buried = affected == 1
		if err := tx.QueryRowContext(ctx, r.queries.isDead, key).Scan(&dead); err != nil {
			return err
		}

		_, err = r.exec(ctx, tx, r.queries.forgetFailure, key)

		return err
	})

	return buried, dead, err
}
