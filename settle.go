package inbox

import (
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// settlement is a verdict on its way into the table.
type settlement struct {
	verdict
	delivery *delivery
}

// decide settles a message. It blocks while too many others wait for the database.
func (s *subscription) decide(d *delivery, f fate) {
	v := verdict{fence: d.fence, lane: d.lane, fate: f}

	d.mu.Lock()
	err := d.err
	reported := d.reported || d.committed || d.lost
	v.published = f == fateDone && d.returned
	d.decided = true
	d.mu.Unlock()

	if err == nil {
		err = errNacked
	} else {
		v.err = printableUpTo(err.Error(), maxLastError)
	}

	if f == fateRetry {
		v.delay = s.backoff(d.attempts)
	}

	if !reported && (f == fateRetry || f == fateDead) {
		s.inbox.callErrorHook(d.ctx, s.inbox.hooks.Failed, d.event, err)
	}

	s.verdicts <- settlement{v, d}
}

// backoff grows from WithBackoff's initial to its max, half of it at random ("equal jitter",
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
func (s *subscription) backoff(attempt int) time.Duration {
	d := s.set.initialBackoff
	for range attempt - 1 {
		if d >= s.set.maxBackoff/2 {
			d = s.set.maxBackoff

			break
		}

		d *= 2
	}

	return d/2 + rand.N(d/2+1)
}

// settleAll carries out verdicts until there are no more.
func (s *subscription) settleAll() {
	var next *settlement // of the next batch

	for {
		if next == nil {
			first, ok := <-s.verdicts
			if !ok {
				return
			}

			next = &first
		}

		batch := []settlement{*next}
		batch, next = s.moreVerdicts(batch)
		s.settle(batch)
	}
}

// moreVerdicts adds to a batch what is there. A second verdict on one message, of a lease that was lost and found again, waits
// for the next batch.
func (s *subscription) moreVerdicts(batch []settlement) (full []settlement, next *settlement) {
	seen := map[Key]bool{batch[0].key: true}

	for len(batch) < maxBatch {
		select {
		case v, ok := <-s.verdicts:
			if !ok {
				return batch, nil
			}

			if seen[v.key] {
				return batch, &v
			}

			seen[v.key] = true
			batch = append(batch, v)
		default:
			return batch, nil
		}
	}

	return batch, nil
}

// settle tries until the database takes it. What it does not take before closing gives up runs out with its lease.
func (s *subscription) settle(batch []settlement) {
	verdicts := make([]verdict, len(batch))
	for i, v := range batch {
		verdicts[i] = v.verdict
	}

	defer s.free(len(batch))

	for pause := retryPause; ; pause = min(2*pause, time.Second) {
		settled, err := s.trySettle(verdicts)
		if err == nil {
			for _, v := range batch {
				s.drop(v.delivery)
				s.settled(v, settled[v.key])
			}

			return
		}

		if isClosed(s.abandoned) {
			s.inbox.logger.Error("Inbox could not complete messages; they will be handed out again", err, s.fields())

			return
		}

		s.inbox.logger.Error("Inbox could not complete messages and tries again", err, s.fields())

		select {
		case <-time.After(pause):
		case <-s.abandoned:
		}
	}
}

func (s *subscription) trySettle(verdicts []verdict) (settled map[Key]bool, err error) {
	ctx, cancel := s.statement()
	defer cancel()

	err = s.inbox.retryTransient(func() (err error) {
		settled, err = s.inbox.repo.settle(ctx, s.owner, verdicts)

		return err
	}, nil)

	return settled, err
}

// settled reports what became of a message.
func (s *subscription) settled(v settlement, held bool) {
	d := v.delivery
	ctx := d.ctx

	d.mu.Lock()
	committed, skipped, err := d.committed, d.skipped, d.err
	d.mu.Unlock()

	if !held {
		if !committed {
			s.inbox.logger.Info("Inbox lost the lease of a message before it was completed", fieldsOf(d.event))
		}

		return
	}

	if v.lane != 0 {
		s.wakeUp() // for the next of its lane
	}

	switch v.fate {
	case fateDone:
		if !committed && !skipped {
			s.inbox.callHook(ctx, s.inbox.hooks.Processed, d.event)
		}
	case fateRetry:
		s.retry.in(v.delay)
	case fateDead, fateOut:
		if err == nil {
			err = errNacked
		}

		s.inbox.logger.Error("Inbox keeps a message as a dead letter", err, fieldsOf(d.event))
		s.inbox.callErrorHook(ctx, s.inbox.hooks.Dead, d.event, err)
	case fateBack:
	}
}

var _ message.SubscribeInitializer = (*subscriber)(nil)
