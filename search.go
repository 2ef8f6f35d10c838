package inbox

import "time"

// place is one in the order in which the messages of a queue are claimed. The zero value is the beginning.
type place struct {
	due int64 // microseconds since 1970, by the database's clock
	seq int64
}

// lateCommit is how long the transactions may take that make messages due, for a look that goes on from a place to see them all:
// what is due counts from their start.
const lateCommit = time.Second

// look is one attempt to claim messages that are due.
type look struct {
	from, next place // where it began, and where the next one may
	short      bool  // it found less than it was to
	took       time.Duration
}

func (l look) isWhole() bool { return l.from == place{} }

// search decides from where to look for messages that are due.
//
// PostgreSQL keeps the index entries of messages that were leased or finished until it is vacuumed, which has to wait for every
// transaction that might still see them. A look from the beginning of a queue reads them all, so most looks go on from where the
// last one ended.
//
// These miss what is before that place: messages that were given back, that another process was about to lease, or that became due in
// a transaction slower than lateCommit. Looks from the beginning find those. There is one in pollInterval, and one whenever nothing
// is left from the place on; but when they are slow, they rest for restAfterLook times as long as they took, and for longestRest at most.
type search struct {
	place     place
	short     bool      // the last look found less than it was to
	nextWhole time.Time // when to look from the beginning although there is enough to do
	restUntil time.Time // and not before then
}

const (
	slowLook      = 20 * time.Millisecond
	restAfterLook = 10
	longestRest   = 10 * time.Second
)

// next is where to look now.
func (s *search) next(now time.Time) place {
	if s.rest(now) <= 0 && (s.short || !now.Before(s.nextWhole)) {
		return place{}
	}

	return s.place
}

// rest is how long there will be no look from the beginning.
func (s *search) rest(now time.Time) time.Duration { return s.restUntil.Sub(now) }

// ended takes down a look that ended now. After one that failed, the place stays what it was.
func (s *search) ended(l look, err error, now time.Time) {
	if err == nil {
		s.place, s.short = l.next, l.short
	}

	if !l.isWhole() {
		return
	}

	s.nextWhole, s.restUntil = now.Add(pollInterval), now

	if l.took > slowLook {
		s.restUntil = now.Add(min(restAfterLook*l.took, longestRest))
	}
}
