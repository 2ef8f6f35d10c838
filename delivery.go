package inbox

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// delivery is a stored message in the hands of this process, from its lease to the verdict on it.
type delivery struct {
	*subscription
	fence

	lane      lane
	attempts  int // this one included
	event     Event
	msg       *message.Message
	processed bool            // when it was leased: only its outputs are still to be published
	ctx       context.Context // of the message as it is handed out
	cancel    context.CancelCauseFunc

	mu        sync.Mutex
	leaseEnd  time.Time // by the clock of this process, which is not later than by the database's
	lost      bool
	decided   bool          // a verdict is on its way
	running   *scope        // of an InTx or of the middleware
	idle      chan struct{} // closed when that has ended, nil when there is none
	committed bool          // the event is processed
	outputs   bool          // and has outputs that are not published yet
	returned  bool          // which the middleware returned, for the router to publish before it acks
	skipped   bool          // with ErrSkip
	reported  bool          // the Failed hook was called
	err       error         // the last one that the inbox saw
}

type deliveryKey struct{}

func deliveryFrom(ctx context.Context) *delivery {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)

	return d
}

var (
	errNotTaken = errors.New("inbox: no handler took the message")
	errSettled  = errors.New("inbox: the message was acked or nacked")
)

// deliver makes a delivery of a message whose lease began at start or later.
func (s *subscription) deliver(l leased, ev Event, msg *message.Message, start time.Time) *delivery {
	d := &delivery{
		subscription: s,
		fence:        l.fence,
		lane:         l.lane,
		attempts:     l.attempts,
		event:        ev,
		msg:          msg,
		processed:    l.processed,
		outputs:      l.outputs,
		leaseEnd:     start.Add(s.set.lease),
	}

	ctx, cancel := context.WithCancelCause(s.messages)
	d.cancel = cancel
	d.ctx = context.WithValue(ctx, deliveryKey{}, d)
	msg.SetContext(d.ctx)

	return d
}

// watch waits for the handler's answer and decides what becomes of the message.
func (d *delivery) watch() {
	var acked bool

	select {
	case <-d.msg.Acked():
		acked = true
	case <-d.msg.Nacked():
	case <-d.abandoned:
		d.drop(d)

		return
	}

	d.reader.took() // a sign of life

	if !d.awaitTransaction() {
		d.drop(d)

		return
	}

	ending := d.messages.Err() != nil // before the handler had answered
	d.cancel(errSettled)
	d.decide(d, d.answer(acked, ending))
}

// awaitTransaction waits for the transaction of a handler that acks or nacks by itself before it is done: it holds the
// message, and all verdicts would have to wait for it. It reports false when it waited for too long.
func (d *delivery) awaitTransaction() bool {
	d.mu.Lock()
	idle := d.idle
	d.mu.Unlock()

	if idle == nil {
		return true
	}

	select {
	case <-idle:
		return true
	case <-d.abandoned:
		return false
	}
}

// answer is the fate that follows from an ack or nack.
func (d *delivery) answer(acked, ending bool) fate {
	d.mu.Lock()
	defer d.mu.Unlock()

	switch {
	case acked, d.skipped, d.committed && !d.outputs:
		return fateDone
	case d.committed || d.processed: // and publishing failed: that must not end in a dead letter
		return fateRetry
	case ending: // which is not the message's fault
		return fateBack
	case d.attempts >= d.set.maxAttempts:
		return fateDead
	default:
		return fateRetry
	}
}

// inTx runs fn in a transaction that also completes the message.
func (d *delivery) inTx(parent context.Context, fn func(tx *sql.Tx) error) error {
	err := d.inbox.retryTransient(func() error { return d.tryInTx(parent, fn) }, func(err error) {
		d.inbox.callErrorHook(parent, d.inbox.hooks.Retried, d.event, err)
	})

	switch {
	case err == nil:
	case errors.Is(err, ErrSkip):
		d.skip()
	default:
		d.mu.Lock()
		d.err = err // for people who look at the dead letter
		d.mu.Unlock()

		d.inbox.reportEarlyAck(d.msg, d.event, err)
	}

	return err
}

func (d *delivery) tryInTx(parent context.Context, fn func(tx *sql.Tx) error) error {
	ctx, cancel := d.inbox.detach(parent)
	defer cancel()

	s := &scope{
		task:   task{msg: d.msg, event: d.event, key: d.key, delivery: d},
		inbox:  d.inbox,
		parent: scopeFrom(parent),
	}

	if err := d.inbox.repo.begin(ctx, s); err != nil {
		return s.failed(ctx, "beginning a transaction for", err)
	}
	defer s.release()

	fresh, err := d.inbox.repo.hold(ctx, s.tx.Tx, d.owner, d.fence)
	if err != nil {
		return s.failed(ctx, "completing", err)
	}

	if !fresh {
		d.mu.Lock()
		d.committed = true
		d.mu.Unlock()

		return nil
	}

	if err := d.run(s, fn); err != nil {
		return err
	}

	if err := d.inbox.commit(ctx, s); err != nil {
		return s.failed(ctx, "committing", err)
	}

	s.release()
	d.commit(false)
	d.inbox.committed(s)

	return nil
}

// run lends the transaction to fn, and to whoever asks the message's context for it.
func (d *delivery) run(s *scope, fn func(tx *sql.Tx) error) error {
	d.runs(s)
	defer d.runs(nil)
	defer s.end()

	return fn(s.tx.Tx)
}

// runs notes that a transaction holds the message, which nobody else can lease until it ends.
func (d *delivery) runs(s *scope) {
	if d == nil {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.running = s

	switch {
	case s != nil:
		d.idle = make(chan struct{})
	case d.idle != nil:
		close(d.idle)
		d.idle = nil
	}
}

// scope returns that of the transaction which is running, or nil.
func (d *delivery) scope() *scope {
	if d == nil {
		return nil
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	return d.running
}

// deliveryOf returns the delivery of a stored message of this inbox's, or nil. A middleware outside may have put a copy in the
// message's place.
func (ib *Inbox) deliveryOf(msg *message.Message) *delivery {
	d := deliveryFrom(msg.Context())
	if d == nil || !d.inbox.isSameAs(ib) || msg != d.msg && msg.UUID != d.msg.UUID {
		return nil
	}

	return d
}

// identifyDelivered is identify for a message that may have been stored, and has kept its identity then.
func (ib *Inbox) identifyDelivered(msg *message.Message, d *delivery) (Event, error) {
	if d != nil {
		return d.event, nil
	}

	return ib.identify(msg)
}

// The methods below do nothing for a message that was not stored.

// commit notes that the event is processed, by a transaction that is committed, and whether the router has outputs to
// publish.
func (d *delivery) commit(outputs bool) {
	if d == nil {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.committed, d.outputs, d.returned = true, outputs, outputs
}

// skip notes that the handler returned ErrSkip.
func (d *delivery) skip() {
	if d == nil {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.skipped = true
}

// hasFailed notes an error that the Failed hook was told of.
func (d *delivery) hasFailed(err error) {
	if d == nil {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.err, d.reported = err, true
}
