package inbox

import (
	"time"
)

// keep has the lease of a message renewed from now on.
func (s *subscription) keep(d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.taken[d] = struct{}{}
}

// drop ends that.
func (s *subscription) drop(d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.taken, d)
}

// keepLeases renews the leases of what handlers have when a third of them has passed, until everything is settled. A
// database that does not answer holds up renewals, but not finding out which leases have ended.
func (s *subscription) keepLeases(settled <-chan struct{}) {
	ticker := time.NewTicker(s.set.lease / 6)
	defer ticker.Stop()

	idle := make(chan struct{}, 1)
	idle <- struct{}{}

	defer func() { <-idle }()

	for {
		select {
		case <-settled:
			return
		case <-ticker.C:
		}

		now := time.Now()
		s.expire(now)

		if due := s.dueForRenewal(now); len(due) > 0 {
			select {
			case <-idle:
				go func() {
					s.renew(due)
					idle <- struct{}{}
				}()
			default: // the last renewal is still running
			}
		}
	}
}

// expire gives up the leases that have ended by the clock of this process, as when the database could not be reached.
func (s *subscription) expire(now time.Time) {
	for _, d := range s.takenWhere(func(d *delivery) bool { return now.After(d.leaseEnd) && d.running == nil }) {
		d.lose()
	}
}

func (s *subscription) dueForRenewal(now time.Time) []*delivery {
	return s.takenWhere(func(d *delivery) bool {
		return !d.lost && d.leaseEnd.Sub(now) <= s.set.lease*2/3
	})
}

func (s *subscription) takenWhere(condition func(d *delivery) bool) (found []*delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for d := range s.taken {
		d.mu.Lock()
		if condition(d) {
			found = append(found, d)
		}
		d.mu.Unlock()
	}

	return found
}

func (s *subscription) renew(deliveries []*delivery) {
	fences := make([]fence, len(deliveries))
	for i, d := range deliveries {
		fences[i] = d.fence
	}

	ctx, cancel := s.statement()
	defer cancel()

	var (
		start   time.Time
		renewed map[Key]bool
	)

	err := s.inbox.retryTransient(func() (err error) {
		start = time.Now()
		renewed, err = s.inbox.repo.renew(ctx, s.owner, s.set.lease, fences)

		return err
	}, nil)
	if err != nil {
		s.inbox.logger.Error("Inbox could not renew leases and tries again", err, s.fields())

		return
	}

	for _, d := range deliveries {
		if renewed[d.key] {
			d.extend(start.Add(s.set.lease))
		} else {
			d.lose()
		}
	}
}

func (d *delivery) extend(end time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.leaseEnd = end
}

// lose tells the handler that somebody else may have its message. What the handler does with the inbox after that is up to
// the fence.
func (d *delivery) lose() {
	d.mu.Lock()
	already := d.lost || d.decided
	d.lost = d.lost || !d.decided
	d.mu.Unlock()

	if already {
		return
	}

	d.inbox.logger.Info("Inbox lost the lease of a message that is being handled", fieldsOf(d.event))
	d.cancel(ErrLeaseLost)
}
