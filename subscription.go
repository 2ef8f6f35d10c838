package inbox

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
)

// How long closing waits for running handlers: their contexts live on for closeGrace, and after closeTimeout they are
// left alone and their leases run out. It is the CloseTimeout of Watermill's router by default.
const (
	closeGrace   = 10 * time.Second
	closeTimeout = 30 * time.Second
)

// statementTimeout bounds the inbox's own transactions, so that a database that does not answer is an error in the end.
const statementTimeout = 30 * time.Second

// subscription is one Subscribe at work. Messages take this way through it:
//
//	broker -> intake -> store -> table -> claim -> ready -> handOut -> reader -> watch -> settle -> table
//	                        \______________________/
//	                      when there is room, already leased
type subscription struct {
	*subscriber

	topic  string
	queue  Key
	owner  Key          // of the leases of this subscription, different from any other
	terms  atomic.Int64 // how many there were
	routed context.Context

	out      chan *message.Message
	arrivals chan *message.Message
	ready    chan *delivery  // claimed, not taken by a handler yet; never more than there are slots
	verdicts chan settlement // on what was claimed

	slots  slots
	reader reader
	behind atomic.Bool // there may be messages in the table that are due
	wake   chan struct{}
	retry  retryTimer

	messages       context.Context // of the messages handed out
	cancelMessages context.CancelCauseFunc
	intake         sync.WaitGroup
	storing        sync.WaitGroup
	failures       atomic.Int64 // of storing, in a row
	stopIntake     context.CancelFunc
	subscribing    context.Context // ends when the caller wants the subscription to
	broken         chan struct{}   // closed when the broker ended all of the intake
	abandoned      chan struct{}   // closed when nothing is waited for any more

	handlers sync.WaitGroup // one for each message that a handler has
	mu       sync.Mutex
	taken    map[*delivery]struct{} // what handlers have
}

func newSubscription(ctx context.Context, s *subscriber, topic string) (*subscription, error) {
	routed, err := routedContext(s.consumer, topic)
	if err != nil {
		return nil, err
	}

	sub := &subscription{
		subscriber:  s,
		topic:       topic,
		queue:       queueOf(s.consumer, topic),
		owner:       Key(uuid.New()),
		routed:      routed,
		out:         make(chan *message.Message),
		arrivals:    make(chan *message.Message, maxBatch),
		ready:       make(chan *delivery, s.set.concurrency),
		verdicts:    make(chan settlement, 2*s.set.concurrency),
		slots:       slots{free: s.set.concurrency},
		wake:        make(chan struct{}, 1),
		subscribing: ctx,
		broken:      make(chan struct{}),
		abandoned:   make(chan struct{}),
		taken:       make(map[*delivery]struct{}),
	}
	sub.retry.fire = sub.wakeUp
	sub.messages, sub.cancelMessages = context.WithCancelCause(context.WithoutCancel(ctx))
	sub.behind.Store(true)

	intakeCtx, stopIntake := context.WithCancel(context.WithoutCancel(ctx))
	sub.stopIntake = stopIntake

	for range s.set.ingest {
		if s.broker == nil {
			break
		}

		messages, err := s.broker.Subscribe(intakeCtx, topic)
		if err != nil {
			stopIntake()
			close(sub.abandoned) // for those that did subscribe

			return nil, err
		}

		sub.intake.Go(func() { sub.take(messages) })
	}

	return sub, nil
}

// run works until the subscription is to end, and ends it from the intake to the last verdict.
func (s *subscription) run() {
	defer close(s.out)
	defer s.inbox.running.stop(s)

	claiming, stopClaiming := context.WithCancel(context.WithoutCancel(s.subscribing))
	defer stopClaiming()

	var claims, handOut, leases, settling sync.WaitGroup

	settled := make(chan struct{})

	s.storing.Go(s.storeAll)
	claims.Go(func() { s.claimAll(claiming) })
	handOut.Go(s.handOutAll)
	leases.Go(func() { s.keepLeases(settled) })
	settling.Go(s.settleAll)

	go s.endIntake()
	s.wakeUp()

	select {
	case <-s.subscribing.Done():
	case <-s.closing:
	case <-s.broken:
		if !isClosed(s.subscribing.Done()) && !isClosed(s.closing) {
			s.inbox.logger.Error("Inbox subscriber stops, because the broker's did", errBrokerEnded, s.fields())
		}
	}

	timeout := time.AfterFunc(closeTimeout, func() { close(s.abandoned) })
	grace := time.AfterFunc(closeGrace, func() { s.cancelMessages(errClosed) })

	stopClaiming()
	s.stopIntake()
	s.storing.Wait()

	for left := true; left; { // where the broker did not end the intake in time
		select {
		case msg, ok := <-s.arrivals:
			if left = ok; ok {
				msg.Nack()
			}
		default:
			left = false
		}
	}

	claims.Wait()
	close(s.ready)
	handOut.Wait()

	s.handlers.Wait()
	close(s.verdicts)
	settling.Wait()
	close(settled)
	leases.Wait()

	s.cancelMessages(errClosed)
	s.retry.stop()
	grace.Stop()
	timeout.Stop()
}

// endIntake tells the store that nothing arrives any more.
func (s *subscription) endIntake() {
	s.intake.Wait()
	close(s.arrivals)

	if s.broker != nil {
		close(s.broken)
	}
}

func (s *subscription) isEnding() bool {
	return isClosed(s.subscribing.Done()) || isClosed(s.closing) || isClosed(s.broken)
}

// pause waits for d, or less when the subscription ends.
func (s *subscription) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-s.subscribing.Done():
	case <-s.closing:
	case <-s.abandoned:
	}
}

// wakeUp has the subscription look for messages that have become due.
func (s *subscription) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it will, anyway
	}
}

// newTerm begins a lease, or several at once.
func (s *subscription) newTerm() term {
	return term{owner: s.owner, number: s.terms.Add(1), duration: s.set.lease}
}

// free gives slots back.
func (s *subscription) free(n int) {
	s.slots.give(n)

	if s.behind.Load() {
		s.wakeUp()
	}
}

// statement returns the context of one of the inbox's own transactions.
func (s *subscription) statement() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(s.subscribing), statementTimeout)
}

// slots are how many messages may still be leased.
type slots struct {
	mu   sync.Mutex
	free int
}

// take reserves up to n slots and returns how many.
func (s *slots) take(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()

	n = min(n, s.free)
	s.free -= n

	return n
}

func (s *slots) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.free += n
}

// retryTimer fires when the earliest of the messages that wait for their next attempt is due. The later ones are found
// by polling, so that it needs no memory for them.
type retryTimer struct {
	fire func()

	mu    sync.Mutex
	at    time.Time // when it fires, zero when it does not
	timer *time.Timer
}

func (t *retryTimer) in(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()

	at := time.Now().Add(d)
	if !t.at.IsZero() && t.at.Before(at) {
		return
	}

	if t.timer != nil {
		t.timer.Stop()
	}

	t.at = at
	t.timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		t.at = time.Time{}
		t.mu.Unlock()

		t.fire()
	})
}

func (t *retryTimer) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.timer != nil {
		t.timer.Stop()
	}
}
