package leasemodel

// claim is one UPDATE of a row that is due and that no transaction has locked.
func (m model) claim(s state, w, e uint8, do emit) {
	r := &s.events[e].row
	if !r.exists || r.due != past || m.locked(&s, e) && !m.claimLocked || m.leasesStay && r.owner != 0 {
		return
	}

	at, free := m.freeSlot(&s, w)
	if !free {
		return
	}

	m.lease(&s, at, e)

	d := at.in(&s)
	st := step{verb: claims, who: at.owner(), event: e, attempt: r.attempts}

	if s.events[e].ledger == processed {
		d.phase = finished
		st.verb = claimsProcessed
		do(st, s)
	}

	// A statement sees the ledger as it was when it began, so a processed event may look unprocessed.
	st.verb = claims

	if r.attempts > m.maxAttempts {
		d.phase = exhausted
		st.verb = claimsTooOften

		if m.dropExhausted {
			*d, r.due = delivery{}, never
		}

		do(st, s)

		return
	}

	d.phase = held
	do(st, s)
}

// lease gives the row to a delivery.
func (m model) lease(s *state, at place, e uint8) {
	s.mark(e, lost)

	r := &s.events[e].row
	r.owner, r.due = at.owner(), future

	r.leases++

	if !m.claimUncounted {
		r.attempts++
	}

	*at.in(s) = delivery{event: e, attempt: r.attempts, lease: r.leases}
}

// expire is the clock. That a worker lives and does not renew its lease in time is a misfortune.
func (m model) expire(s state, e uint8, do emit) {
	r := &s.events[e].row
	if r.owner == 0 || r.due != future {
		return
	}

	if s.anyDelivery(func(d delivery) bool { return d.event == e && d.claim == current }) && !s.misfortune() {
		return
	}

	r.due = past

	do(step{verb: expires, event: e}, s)
}

// handOut is what happens to a delivery until its handler ends.
func (m model) handOut(s state, at place, d delivery, do emit) {
	st := step{who: at.owner(), event: d.event, attempt: d.attempt, claim: d.claim}

	switch d.phase {
	case held:
		m.take(s, at, st, do)
		m.decideToReturn(s, at, st, do)
	case running:
		m.close(s, at, st, do)

		if m.giveBackTaken {
			m.decideToReturn(s, at, st, do)
		}

		m.renew(s, at, d, st, do)
	case finished:
		m.renew(s, at, d, st, do)
	case returning:
		m.giveBack(s, at, d, st, do)
		m.sendAgain(s, d, at, st, do)
	}
}

func (m model) take(s state, at place, st step, do emit) {
	d := at.in(&s)
	d.phase = running

	if d.claim != outdated {
		s.events[d.event].seen++
	}

	st.verb = takes
	do(st, s)
}

// decideToReturn ends the time in which a handler can take the message. The statement follows.
func (m model) decideToReturn(s state, at place, st step, do emit) {
	if !s.misfortune() {
		return
	}

	at.in(&s).phase = returning

	st.verb = decidesToReturn
	do(st, s)
}

// close is a handler that was cancelled because the subscriber closes, and nacks: that attempt does not count.
func (m model) close(s state, at place, st step, do emit) {
	if !s.misfortune() {
		return
	}

	d := at.in(&s)
	d.phase = returning

	if d.claim != outdated {
		s.events[d.event].seen--
	}

	st.verb = closes
	do(st, s)
}

func (m model) giveBack(s state, at place, d delivery, st step, do emit) {
	mine := m.fenced(&s, at, d)
	if mine && m.locked(&s, d.event) {
		return
	}

	*at.in(&s) = delivery{}

	if mine {
		r := &s.events[d.event].row
		r.attempts, r.owner, r.due = r.attempts-1, 0, past
		s.mark(d.event, lost)
	}

	st.verb = givesBack
	do(st, s)
}

// sendAgain repeats a statement whose answer did not come, and which the server may still run at any time.
func (m model) sendAgain(s state, d delivery, at place, st step, do emit) {
	other, free := m.freeSlot(&s, at.worker)
	if m.lane || !free || !s.misfortune() {
		return
	}

	*other.in(&s) = d

	st.verb = sendsAgain
	do(st, s)
}

// renew is one UPDATE that skips a locked row. Only a renewal that changes something is a step.
func (m model) renew(s state, at place, d delivery, st step, do emit) {
	r := &s.events[d.event].row

	mine := m.fenced(&s, at, d) || m.renewUnfenced && r.exists
	if !mine || m.locked(&s, d.event) || r.due == future {
		return
	}

	r.due = future

	st.verb = renews
	do(st, s)
}

// crash takes a worker's memory. Its transactions roll back, since they exist only as its deliveries' phase.
func (m model) crash(s state, w uint8, do emit) {
	if s.workers[w] == (worker{}) || !s.misfortune() {
		return
	}

	s.workers[w] = worker{}

	do(step{verb: crashes, who: w + 1}, s)
}
