package leasemodel

import "fmt"

// model is a protocol with processes that use it.
type model struct {
	scenario
	rules
}

// scenario says who is there and how often things go wrong.
type scenario struct {
	name        string
	events      uint8
	slots       int
	lane        bool // all events have the same ordering key
	plain       bool // handlers that leave it at their Ack
	inTx        bool // handlers that use InTx or run under the middleware
	sameTx      bool // a process in same-transaction mode
	maxAttempts uint8
	misfortunes uint8 // crashes, leases that end under a worker, deliveries that nobody takes, answers lost, and so on
}

// step is a transition's label.
type step struct {
	verb    verb
	who     uint8
	event   uint8
	attempt uint8
	claim   claim // of the delivery for which it was made
}

type emit func(step, state)

func (m model) initial() state {
	s := state{left: m.misfortunes}
	for e := range m.events {
		s.events[e].inBroker = true
	}

	return s
}

// next calls out with every step that some process, the operator, the clock or the broker can make in s.
func (m model) next(s state, out func(step, state)) {
	do := func(st step, to state) { out(st, to.canonical()) }

	for e := range m.events {
		m.expire(s, e, do)
		m.redeliver(s, e, do)
		m.requeue(s, e, do)
		m.discard(s, e, do)

		for w := range uint8(workers) {
			m.store(s, w, e, do)
			m.ackBroker(s, w, e, do)
			m.claim(s, w, e, do)
		}

		m.sameTxBegin(s, e, do)
	}

	m.sameTxGoOn(s, do)

	for w := range uint8(workers) {
		m.crash(s, w, do)

		for i, d := range s.workers[w].deliveries {
			m.handOut(s, place{w, i}, d, do)
			m.finish(s, place{w, i}, d, do)
		}
	}
}

// place is where a delivery is.
type place struct {
	worker uint8
	slot   int
}

func (p place) owner() uint8 { return p.worker + 1 }

func (p place) in(s *state) *delivery { return &s.workers[p.worker].deliveries[p.slot] }

func (m model) freeSlot(s *state, w uint8) (place, bool) {
	for i := range m.slots {
		if s.workers[w].deliveries[i].phase == empty {
			return place{w, i}, true
		}
	}

	return place{}, false
}

type verb uint8

const (
	stores verb = iota
	storesLeased
	storesNothing
	storesAgain
	looksIntoLane
	acksBroker
	claims
	claimsTooOften
	claimsProcessed
	takes
	decidesToReturn
	closes
	sendsAgain
	givesBack
	renews
	completes
	fails
	marksDead
	locks
	losesLease
	commits
	rollsBack
	publishesAndAcks
	crashes
	begins
	findsIt
	takesOver
	leavesIt
	expires
	redelivers
	requeues
	discards
)

func (s step) String() string {
	who, e, attempt := name(s.who), s.event+1, s.attempt

	switch s.verb {
	case stores:
		return fmt.Sprintf("%s stores e%d", who, e)
	case storesLeased:
		return fmt.Sprintf("%s stores e%d, leased by itself (attempt 1)", who, e)
	case storesNothing:
		return fmt.Sprintf("%s gets e%d again and stores nothing", who, e)
	case storesAgain:
		return fmt.Sprintf("%s gets e%d again and stores it to replay it", who, e)
	case looksIntoLane:
		return fmt.Sprintf("%s looks into the lane, about e%d", who, e)
	case acksBroker:
		return fmt.Sprintf("%s acks e%d to the broker", who, e)
	case claims:
		return fmt.Sprintf("%s claims e%d (attempt %d)", who, e, attempt)
	case claimsTooOften:
		return fmt.Sprintf("%s claims e%d (attempt %d, too many)", who, e, attempt)
	case claimsProcessed:
		return fmt.Sprintf("%s claims e%d (attempt %d) to replay it", who, e, attempt)
	case takes:
		return fmt.Sprintf("%s: a handler takes e%d (attempt %d)", who, e, attempt)
	case decidesToReturn:
		return fmt.Sprintf("%s: nobody took e%d (attempt %d)", who, e, attempt)
	case closes:
		return fmt.Sprintf("%s closes: the handler nacks e%d (attempt %d)", who, e, attempt)
	case sendsAgain:
		return fmt.Sprintf("%s gets no answer for e%d, sends it again", who, e)
	case givesBack:
		return fmt.Sprintf("%s gives e%d back (attempt %d)", who, e, attempt)
	case renews:
		return fmt.Sprintf("%s renews e%d (attempt %d)", who, e, attempt)
	case completes:
		return fmt.Sprintf("%s: Ack of e%d (attempt %d)", who, e, attempt)
	case fails:
		return fmt.Sprintf("%s: Nack of e%d (attempt %d)", who, e, attempt)
	case marksDead:
		return fmt.Sprintf("%s marks e%d dead (attempt %d)", who, e, attempt)
	case locks:
		return fmt.Sprintf("%s: InTx of e%d (attempt %d) locks the row", who, e, attempt)
	case losesLease:
		return fmt.Sprintf("%s: InTx of e%d (attempt %d) finds the lease lost", who, e, attempt)
	case commits:
		return fmt.Sprintf("%s commits the effect of e%d", who, e)
	case rollsBack:
		return fmt.Sprintf("%s rolls back e%d", who, e)
	case publishesAndAcks:
		return fmt.Sprintf("%s publishes the outputs of e%d and acks", who, e)
	case crashes:
		return who + " crashes"
	case begins:
		return fmt.Sprintf("%s inserts e%d in a transaction", who, e)
	case findsIt:
		return fmt.Sprintf("%s finds e%d in the ledger", who, e)
	case takesOver:
		return fmt.Sprintf("%s locks the row of e%d to take it over", who, e)
	case leavesIt:
		return fmt.Sprintf("%s leaves e%d to whoever has it", who, e)
	case expires:
		return fmt.Sprintf("the lease of e%d ends", e)
	case redelivers:
		return fmt.Sprintf("the broker has e%d once more", e)
	case requeues:
		return fmt.Sprintf("the operator requeues e%d", e)
	case discards:
		return fmt.Sprintf("the operator discards e%d", e)
	default:
		return "?"
	}
}
