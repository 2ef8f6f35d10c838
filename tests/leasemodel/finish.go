package leasemodel

// fenced reports whether the row is still the one that was claimed for this delivery, as far as the database can tell.
func (m model) fenced(s *state, at place, d delivery) bool {
	r := s.events[d.event].row
	mine := r.exists && r.owner == at.owner()

	switch {
	case m.fenceByOwner:
		return mine
	case m.fenceByAttempts:
		return mine && r.attempts == d.attempt
	default:
		return mine && r.leases == d.lease
	}
}

// locked is state.locked under the rules.
func (m model) locked(s *state, e uint8) bool {
	return !m.inTxUnlocked && s.locked(e)
}

// finish is what a handler, or the router after it, can do with a delivery. Every statement waits for locks.
func (m model) finish(s state, at place, d delivery, do emit) {
	st := step{who: at.owner(), event: d.event, attempt: d.attempt, claim: d.claim}

	switch d.phase {
	case running:
		if m.plain {
			m.complete(s, at, d, st, do)
		}

		if m.inTx {
			m.beginInTx(s, at, d, st, do)
		}

		m.fail(s, at, d, st, do)
	case inTx:
		m.commitInTx(s, at, st, do)
		m.rollBackInTx(s, at, st, do)
	case finished:
		m.complete(s, at, d, st, do)
		m.fail(s, at, d, st, do)
	case exhausted:
		m.markDead(s, at, d, st, do)
	}
}

// complete is the transaction of an Ack: the ledger row is processed if it was not, the payload row leaves, and the next
// of the lane is promoted.
func (m model) complete(s state, at place, d delivery, st step, do emit) {
	mine := m.fenced(&s, at, d) || m.completeUnfenced && s.events[d.event].row.exists
	if mine && m.locked(&s, d.event) {
		return
	}

	if mine && m.lane && m.lookBeforePromote && d.look == notYet {
		at.in(&s).look = s.lookIntoLane(d.event)
		st.verb = looksIntoLane
		do(st, s)

		return
	}

	*at.in(&s) = delivery{}

	ev := &s.events[d.event]

	st.verb = completes
	if d.phase == finished {
		ev.published = true
		st.verb = publishesAndAcks
	}

	if mine {
		if d.phase == running {
			ev.completed++
		}

		ev.ledger, ev.outputs = processed, false
		m.remove(&s, d.event)
		m.promote(&s, d.look, m.stayAtComplete)
	}

	do(st, s)
}

// fail is a Nack: another attempt later, or death after the last. Later is now, since a model has no clock.
func (m model) fail(s state, at place, d delivery, st step, do emit) {
	r := &s.events[d.event].row

	mine := m.fenced(&s, at, d) || m.failUnfenced && r.exists
	if mine && m.locked(&s, d.event) {
		return
	}

	if d.phase == finished && !s.misfortune() { // publishing failed
		return
	}

	*at.in(&s) = delivery{}

	switch {
	case !mine:
	case d.phase == running && r.attempts >= m.maxAttempts:
		m.die(&s, d.event)
	default:
		r.owner, r.due = 0, past
		if m.forgetCount {
			r.attempts--
		}

		if m.claimUncounted {
			r.attempts++
		}

		s.mark(d.event, lost)
	}

	st.verb = fails
	do(st, s)
}

// markDead is for a message that was claimed once too often, because its last worker died or stalled.
func (m model) markDead(s state, at place, d delivery, st step, do emit) {
	mine := m.fenced(&s, at, d)
	if mine && m.locked(&s, d.event) {
		return
	}

	*at.in(&s) = delivery{}

	if mine {
		m.die(&s, d.event)
	}

	st.verb = marksDead
	do(st, s)
}

// beginInTx locks the row behind the fence and looks whether there is anything left to do.
func (m model) beginInTx(s state, at place, d delivery, st step, do emit) {
	ev := &s.events[d.event]

	if m.effectBeforeLock {
		ev.effects++
	}

	mine := m.fenced(&s, at, d) || m.inTxUnfenced && ev.row.exists

	switch {
	case m.locked(&s, d.event):
		return
	case !mine:
		*at.in(&s) = delivery{}
		st.verb = losesLease
	case ev.ledger == processed && !m.trustClaim:
		at.in(&s).phase = finished
		st.verb = findsIt
	default:
		at.in(&s).phase = inTx
		st.verb = locks
	}

	do(st, s)
}

func (m model) commitInTx(s state, at place, st step, do emit) {
	at.in(&s).phase = finished

	ev := &s.events[st.event]
	ev.ledger, ev.outputs = processed, true

	if !m.effectBeforeLock {
		ev.effects++
	}

	if m.deleteInTx {
		m.remove(&s, st.event)
		m.promote(&s, notYet, false)
	}

	st.verb = commits
	do(st, s)
}

func (m model) rollBackInTx(s state, at place, st step, do emit) {
	at.in(&s).phase = running

	st.verb = rollsBack
	do(st, s)
}

// remove deletes the payload row.
func (m model) remove(s *state, e uint8) {
	s.events[e].row = row{}
	s.mark(e, lost)
}

// die keeps the row for the operator, and the lane going.
func (m model) die(s *state, e uint8) {
	ev := &s.events[e]
	ev.row.dead, ev.row.due, ev.row.owner = true, never, 0
	ev.died = true

	if m.buryDead {
		ev.row = row{}
	}

	s.mark(e, lost)
	m.promote(s, notYet, m.stayAtDeath)
}
