package inbox

import "time"

// search decides from where a subscription looks for messages that are due.
//
// PostgreSQL keeps the index entries of messages that were leased or finished until it is vacuumed, which has to wait for every
// transaction that might still see them. Who looks from the beginning of a queue reads them all, each time. Most looks go on
// where the last one ended, therefore. Those from the beginning find what became due before that place, such as messages that were
// given back: once in pollInterval, and whenever there is nothing left from that place on, unless the last of them was slow.
type search struct {
	place place // where the last look ended
	short bool  // it found less than it was to

	whole time.Time // when to look from the beginning even if there is enough to do
	rest  time.Time // and not before then
}

// A look from the beginning that takes longer than slowLook has much to read that is of no use, and there are such looks for one
// part in restAfterLook of the time at most.
const (
	slowLook      = 20 * time.Millisecond
	restAfterLook = 10
)

// from is where to look next.
func (s *search) from(now time.Time) place {
	if !now.Before(s.rest) && (s.short || !now.Before(s.whole)) {
		return place{}
	}

	return s.place
}

// found takes down how a look went.
func (s *search) found(from, last place, short bool, began, ended time.Time) {
	s.place, s.short = last, short

	if from != (place{}) {
		return
	}

	s.whole, s.rest = ended.Add(pollInterval), ended

	if took := ended.Sub(began); took > slowLook {
		s.rest = ended.Add(restAfterLook * took)
	}
}
