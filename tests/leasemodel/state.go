package leasemodel

import (
	"fmt"
	"strings"
)

const (
	events  = 3
	workers = 2
	slots   = 2 // deliveries that a worker can have at a time
)

// state is the broker, the two tables, the memory of every process, and what the properties need to remember. It is
// small and comparable, so that it can be the key of a map.
type state struct {
	events  [events]event
	workers [workers]worker
	sameTx  sameTx
	left    uint8 // misfortunes that can still happen
}

type event struct {
	inBroker bool // an unacked message exists
	ledger   ledger
	row      row
	outputs  bool // are stored

	// What really happened.
	acked     bool  // the broker was told that it can forget the event
	effects   uint8 // committed by InTx, the middleware and the same-transaction mode
	completed uint8 // how often a worker finished the event
	seen      uint8 // how many handlers got it since it was stored or requeued
	died      bool
	discarded bool
	published bool // the outputs of the handler
}

type ledger uint8

const (
	absent ledger = iota
	unprocessed
	processed
)

// row is one of the payload table.
type row struct {
	exists   bool
	dead     bool
	due      due
	attempts uint8
	leases   uint8 // how often it was claimed, which never goes down; the code has owners number their leases
	owner    uint8 // 0 is nobody; w+1 is worker w, even after a restart, which is harder than reality
	seq      uint8
}

type due uint8

const (
	never due = iota // dead, or waiting for its turn in the lane
	past
	future
)

type worker struct {
	toAck      [events]bool // stored and not acked
	deliveries [slots]delivery
	looked     [events]look // only in a mutation
}

// delivery is a message in a worker's memory.
type delivery struct {
	phase   phase
	event   uint8
	attempt uint8
	lease   uint8
	look    look // only in a mutation
	claim   claim
}

type phase uint8

const (
	empty     phase = iota
	exhausted       // claimed once too often, about to be marked dead
	held            // claimed, no handler yet
	returning       // about to be given back
	running         // the handler has it
	inTx            // and is in InTx, which has the row locked
	finished        // the effect is committed; outputs are to be published and the message to be acked
)

// claim is what became of the claim by which a worker got a delivery. A worker does not know.
type claim uint8

const (
	current  claim = iota
	lost           // the row changed hands, or is gone
	outdated       // and its attempts are counted anew since
)

// look is what a transaction saw in a lane before it had the lane's lock.
type look uint8

const (
	notYet look = iota
	sawNothing
	sawEvent // sawEvent+e is event e
)

// sameTx is a process with nothing but the middleware, at work on one message.
type sameTx struct {
	phase sameTxPhase
	event uint8
}

type sameTxPhase uint8

const (
	idle      sameTxPhase = iota
	fresh                 // in a transaction that inserted the ledger row
	found                 // the ledger row is there and was unprocessed
	takenOver             // in a transaction that has the payload row locked
	committed             // outputs are to be published and the message to be acked
	duplicate             // the message is to be acked
)

// locked reports whether a transaction that is open has the payload row of e locked.
func (s *state) locked(e uint8) bool {
	if s.sameTx == (sameTx{takenOver, e}) {
		return true
	}

	return s.anyDelivery(func(d delivery) bool { return d.phase == inTx && d.event == e })
}

func (s *state) anyDelivery(is func(delivery) bool) bool {
	for _, w := range s.workers {
		for _, d := range w.deliveries {
			if d.phase != empty && is(d) {
				return true
			}
		}
	}

	return false
}

// misfortune uses one up, if there is one left.
func (s *state) misfortune() bool {
	if s.left == 0 {
		return false
	}

	s.left--

	return true
}

// insert stores the payload row.
func (s *state) insert(e uint8, parked bool) {
	s.mark(e, outdated)

	ev := &s.events[e]
	ev.row, ev.seen = row{exists: true, due: past, seq: s.nextSeq()}, 0

	if parked {
		ev.row.due = never
	}
}

// nextSeq is above the numbers that are in use.
func (s *state) nextSeq() (seq uint8) {
	for _, ev := range s.events {
		if ev.row.exists {
			seq = max(seq, ev.row.seq+1)
		}
	}

	return seq
}

// mark says that the deliveries of e do not have the row any more.
func (s *state) mark(e uint8, as claim) {
	for w := range s.workers {
		for i := range s.workers[w].deliveries {
			if d := &s.workers[w].deliveries[i]; d.phase != empty && d.event == e {
				d.claim = max(d.claim, as)
			}
		}
	}
}

// canonical sorts what has no order.
func (s state) canonical() state {
	for w := range s.workers {
		if ds := &s.workers[w].deliveries; ds[0].rank() < ds[1].rank() {
			ds[0], ds[1] = ds[1], ds[0]
		}
	}

	return s
}

func (d delivery) rank() (rank uint64) {
	for _, v := range [...]uint8{
		uint8(d.phase), d.event, d.attempt, d.lease, uint8(d.look), uint8(d.claim),
	} {
		rank = rank<<8 | uint64(v)
	}

	return rank
}

// String shows the tables.
func (s state) String() string {
	var all []string

	for e, ev := range s.events {
		if ev == (event{}) || ev == (event{inBroker: true}) {
			continue
		}

		text := fmt.Sprintf("e%d: %s", e+1, [...]string{"unknown", "unprocessed", "processed"}[ev.ledger])

		if r := ev.row; r.exists {
			text += fmt.Sprintf(", row attempts=%d owner=%s due=%s", r.attempts, name(r.owner),
				[...]string{"null", "past", "future"}[r.due])

			if r.dead {
				text += " dead"
			}

			if s.locked(uint8(e)) {
				text += " locked"
			}
		}

		if ev.effects > 0 {
			text += fmt.Sprintf(", effects=%d", ev.effects)
		}

		all = append(all, text)
	}

	return strings.Join(all, " | ")
}

func name(owner uint8) string {
	return [...]string{"null", "A", "B", "M"}[owner]
}
