package leasemodel

// store is one transaction of the subscriber's: the ledger row, and the payload row when the ledger row was new. The
// insert waits for a same-transaction process that inserted the same ledger row and has not committed. An event with stored
// outputs is stored once more, to replay it, because a process may have died between its commit and its publishing.
func (m model) store(s state, w, e uint8, do emit) {
	ev, to := &s.events[e], &s.workers[w]

	ready := ev.inBroker && !to.toAck[e]
	if m.ackBeforeCommit {
		ready = to.toAck[e]
	}

	if !ready || s.sameTx == (sameTx{fresh, e}) {
		return
	}

	st := step{verb: storesNothing, who: w + 1, event: e}

	if m.lookBeforeStore && m.lane && ev.ledger == absent && to.looked[e] == notYet {
		to.looked[e] = s.lookIntoLane(e)
		st.verb = looksIntoLane
		do(st, s)

		return
	}

	to.toAck[e] = !m.ackBeforeCommit

	if m.lane { // what the broker does is for the other scenarios
		to.toAck[e], ev.inBroker, ev.acked = false, false, true
	}

	if ev.ledger != absent && (!m.storeUnseen || ev.row.exists) {
		if !m.ackUnpublished && ev.outputs && !ev.row.exists {
			s.insert(e, m.lane && s.lookIntoLane(e) != sawNothing)

			st.verb = storesAgain
		}

		do(st, s)

		return
	}

	ev.ledger = max(ev.ledger, unprocessed)
	s.insert(e, m.parked(&s, w, e))

	to.looked[e] = notYet
	st.verb = stores
	do(st, s)

	if at, free := m.freeSlot(&s, w); free && !m.lane {
		m.lease(&s, at, e)
		at.in(&s).phase = held
		st.verb = storesLeased
		do(st, s)
	}
}

func (m model) parked(s *state, w, e uint8) bool {
	switch {
	case !m.lane || m.storeActive:
		return false
	case m.lookBeforeStore:
		return s.workers[w].looked[e] != sawNothing
	default:
		return s.lookIntoLane(e) != sawNothing
	}
}

func (m model) ackBroker(s state, w, e uint8, do emit) {
	ev, from := &s.events[e], &s.workers[w]

	if m.ackBeforeCommit {
		if !ev.inBroker || from.toAck[e] {
			return
		}
	} else if !from.toAck[e] {
		return
	}

	from.toAck[e] = m.ackBeforeCommit
	ev.inBroker, ev.acked = false, true

	do(step{verb: acksBroker, who: w + 1, event: e}, s)
}

// redeliver is a producer that sends the event again. A message that was not acked needs no budget to come again.
func (m model) redeliver(s state, e uint8, do emit) {
	ev := &s.events[e]
	if m.lane || ev.inBroker || !ev.acked || !s.misfortune() {
		return
	}

	ev.inBroker = true

	do(step{verb: redelivers, event: e}, s)
}
