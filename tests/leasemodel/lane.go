package leasemodel

// All of this is done with the lane's lock held from before the first look, so that each is part of one step.

// lookIntoLane returns sawNothing when no row but e is undead, else the one that is next.
func (s *state) lookIntoLane(e uint8) look {
	seen := sawNothing

	for other := range uint8(events) {
		r := s.events[other].row
		if other == e || !r.exists || r.dead {
			continue
		}

		if seen == sawNothing || r.seq < s.events[seen-sawEvent].row.seq {
			seen = sawEvent + look(other)
		}
	}

	return seen
}

// active returns the row of the lane that is in turn.
func (s *state) active(except uint8) (e uint8, ok bool) {
	for e := range uint8(events) {
		if r := s.events[e].row; e != except && r.exists && r.due != never {
			return e, true
		}
	}

	return 0, false
}

// promote makes the undead row with the lowest number the active one, when the lane has none.
func (m model) promote(s *state, looked look, forgotten bool) {
	if _, ok := s.active(events); !m.lane || ok || forgotten {
		return
	}

	if looked == notYet {
		looked = s.lookIntoLane(events)
	}

	if looked == sawNothing {
		return
	}

	next := &s.events[looked-sawEvent].row

	for e := range s.events {
		if r := &s.events[e].row; m.promoteNewest && r.exists && !r.dead && r.seq > next.seq {
			next = r
		}
	}

	if next.exists {
		next.due = past
	}
}

// requeue gives a dead row its attempts back. In a lane it runs next: at once if the active row is later and nobody has it.
func (m model) requeue(s state, e uint8, do emit) {
	ev := &s.events[e]
	if !ev.row.dead || !s.misfortune() {
		return
	}

	ev.row.dead, ev.row.due, ev.row.attempts = false, past, 0
	ev.seen = 0
	s.mark(e, outdated)

	if other, ok := s.active(e); m.lane && ok && !m.requeueActive {
		r := &s.events[other].row

		leased := r.owner != 0
		if m.parkExpired {
			leased = r.due == future
		}

		if !m.parkLeased && leased || r.seq < ev.row.seq {
			ev.row.due = never
		} else {
			r.due = never
		}
	}

	do(step{verb: requeues, event: e}, s)
}

// discard finishes a dead event without effect.
func (m model) discard(s state, e uint8, do emit) {
	ev := &s.events[e]
	if !ev.row.dead {
		return
	}

	m.remove(&s, e)

	ev.discarded, ev.outputs = true, false
	if !m.discardOpen {
		ev.ledger = processed
	}

	do(step{verb: discards, event: e}, s)
}
