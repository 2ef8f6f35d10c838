package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// pollInterval is how often a subscription looks for messages that it has not heard of: stored by processes that died,
// requeued elsewhere, or due again after a pause.
const pollInterval = time.Second

// maxClaim bounds one transaction that claims messages.
const maxClaim = 512

// claimAll leases what is due whenever there is room for it, until ctx ends.
func (s *subscription) claimAll(ctx context.Context) {
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()

	var (
		pause  = retryPause
		search search
	)

	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-poll.C: // at random, so that processes do not keep in step
			poll.Reset(pollInterval/2 + rand.N(pollInterval/2))
		}

		// From here on newly stored messages have to queue up, until there is nothing due in the table.
		s.behind.Store(true)

		for s.behind.Load() && ctx.Err() == nil && !s.isEnding() {
			n := s.slots.take(s.reader.appetite(maxClaim))
			if n == 0 {
				break // freeing one wakes up, and so does polling
			}

			look := look{from: search.next(time.Now())}
			claimed, err := s.claim(&look, n)
			s.slots.give(n - claimed) // without waking up for them
			search.ended(look, err, time.Now())

			if err != nil {
				s.inbox.logger.Error("Inbox could not lease stored messages and tries again", err, s.fields())
				s.pause(pause)
				pause = min(2*pause, maxNackPause)

				continue
			}

			pause = retryPause

			rest := search.rest(time.Now())

			switch {
			case !look.short:
			case look.isWhole():
				s.behind.Store(false)
			case rest > 0: // what may be left is nothing to wait for
				s.behind.Store(false)
				s.retry.in(rest)
			}
		}
	}
}

// claim leases up to n messages and returns how many slots they take.
func (s *subscription) claim(look *look, n int) (int, error) {
	ctx, cancel := s.statement()
	defer cancel()

	var (
		start   time.Time
		claimed []leased
	)

	err := s.inbox.retryTransient(func() (err error) {
		start = time.Now()
		claimed, err = s.inbox.repo.lease(ctx, s.queue, s.newTerm(), look, n)

		return err
	}, nil)
	if err != nil {
		return 0, err
	}

	for _, l := range claimed {
		s.receive(l, start)
	}

	return len(claimed), nil
}

// receive hands out a claimed message, unless its fate is known already.
func (s *subscription) receive(l leased, start time.Time) {
	ev, _, msg, err := decodeStored(l.data)
	if errors.Is(err, errStoredVersion) { // for a newer process
		s.inbox.logger.Error("Inbox leaves a stored message to others", err, s.fields().Add(watermill.LogFields{"key": l.key.String()}))
		s.verdicts <- settlement{
			verdict:  verdict{fence: l.fence, lane: l.lane, fate: fateRetry, delay: s.set.maxBackoff},
			delivery: &delivery{subscription: s, event: ev, ctx: s.messages},
		}

		return
	}

	if err != nil && (!l.processed || l.outputs) {
		err = fmt.Errorf("inbox: stored message %s: %w", l.key, err)
		s.verdicts <- settlement{
			verdict:  verdict{fence: l.fence, lane: l.lane, fate: fateDead, err: printable(err.Error())},
			delivery: &delivery{subscription: s, event: ev, err: err, ctx: s.messages},
		}

		return
	}

	if msg == nil { // of no interest any more
		msg = message.NewMessage("", nil)
	}

	d := s.deliver(l, ev, msg, start)

	switch {
	case l.processed && !l.outputs: // and whoever did it died before saying so
		d.committed = true
		d.cancel(errSettled)
		s.decide(d, fateDone)
	case l.attempts > s.set.maxAttempts && !l.processed:
		d.err = fmt.Errorf("inbox: out of attempts after %d: the last ended without an answer, as when the process dies"+
			" or loses its lease, or WithMaxAttempts was lowered since", l.attempts-1)
		d.cancel(errSettled)
		s.decide(d, fateOut)
	default:
		s.ready <- d
	}
}

// handOutAll gives what is ready to the reader, and what the reader does not take to others.
func (s *subscription) handOutAll() {
	for d := range s.ready {
		if s.offer(d) {
			s.reader.took()

			continue
		}

		s.reader.refused(s.set.lease)
		d.cancel(errNotTaken)
		s.decide(d, fateBack)
	}
}

// offer reports whether the reader took the message.
func (s *subscription) offer(d *delivery) bool {
	if s.isEnding() {
		return false
	}

	// Before the lease ends, so that the message can be given back in time and is not renewed for nobody.
	patience := time.Until(d.leaseEnd) - s.set.lease/2
	if patience <= 0 {
		return false
	}

	select {
	case s.out <- d.msg: // without a timer, when the reader waits
		s.handle(d)

		return true
	default:
	}

	timer := time.NewTimer(patience)
	defer timer.Stop()

	select {
	case s.out <- d.msg:
		s.handle(d)

		return true
	case <-timer.C:
	case <-s.subscribing.Done():
	case <-s.closing:
	case <-s.broken:
	}

	return false
}

// handle looks after a message that the reader took, until it is settled.
func (s *subscription) handle(d *delivery) {
	s.keep(d)
	s.handlers.Go(d.watch)
}

// reader is what a subscription knows of whoever reads its channel. One that does not read must not keep messages from other
// processes by leasing them again and again.
type reader struct {
	mu    sync.Mutex
	away  bool
	until time.Time // when it is worth another try
}

func (r *reader) took() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.away = false
}

// refused has the messages left to others for about the length of a lease.
func (r *reader) refused(lease time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()

	wait := max(lease, pollInterval)
	r.away, r.until = true, time.Now().Add(wait/2+rand.N(wait))
}

// appetite is how many of n messages it makes sense to lease.
func (r *reader) appetite(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()

	switch {
	case !r.away:
		return n
	case time.Now().After(r.until):
		return 1
	default:
		return 0
	}
}
