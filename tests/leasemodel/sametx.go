package leasemodel

// sameTxBegin is the middleware without a subscriber: it inserts the ledger row, or finds it.
func (m model) sameTxBegin(s state, e uint8, do emit) {
	if !m.sameTx || s.sameTx.phase != idle || !s.events[e].inBroker {
		return
	}

	st := step{verb: findsIt, who: workers + 1, event: e}

	switch s.events[e].ledger {
	case absent:
		s.sameTx = sameTx{fresh, e}
		st.verb = begins
	case unprocessed:
		s.sameTx = sameTx{found, e}
	case processed:
		s.sameTx = sameTx{committed, e}
	}

	do(st, s)
}

func (m model) sameTxGoOn(s state, do emit) {
	e := s.sameTx.event
	st := step{who: workers + 1, event: e}

	if s.sameTx.phase == idle {
		return
	}

	if crashed := s; crashed.misfortune() {
		crashed.sameTx = sameTx{}
		do(step{verb: crashes, who: workers + 1}, crashed)
	}

	switch s.sameTx.phase {
	case found:
		m.takeOver(s, st, do)
	case fresh, takenOver:
		m.sameTxCommit(s, st, do)

		s.sameTx = sameTx{}
		st.verb = rollsBack
		do(st, s)
	case committed:
		s.sameTx = sameTx{}
		s.events[e].published, s.events[e].inBroker, s.events[e].acked = true, false, true
		st.verb = publishesAndAcks
		do(st, s)
	case duplicate:
		s.sameTx = sameTx{}
		s.events[e].inBroker, s.events[e].acked = false, true
		st.verb = acksBroker
		do(st, s)
	}
}

// takeOver locks the payload row of an event that was stored and that no worker has, without waiting for it.
func (m model) takeOver(s state, st step, do emit) {
	ev := &s.events[st.event]

	switch {
	case ev.ledger == processed && !m.takeOverUnchecked:
		s.sameTx.phase = committed
		st.verb = findsIt
	case m.canTakeOver(&s, st.event):
		s.sameTx.phase = takenOver
		st.verb = takesOver
	default:
		s.sameTx.phase = duplicate
		st.verb = leavesIt
	}

	do(st, s)
}

func (m model) canTakeOver(s *state, e uint8) bool {
	r := s.events[e].row

	return r.exists && r.due == past && !m.lane && (!m.locked(s, e) || m.takeOverLocked)
}

func (m model) sameTxCommit(s state, st step, do emit) {
	ev := &s.events[st.event]
	ev.ledger, ev.outputs = processed, true
	ev.effects++

	switch {
	case s.sameTx.phase == fresh:
	case m.takeOverDeletes:
		m.remove(&s, st.event)
	default: // the row stays until its outputs are published for sure
		ev.row.owner, ev.row.due = 0, past
		s.mark(st.event, lost)
	}

	s.sameTx.phase = committed
	st.verb = commits
	do(st, s)
}
