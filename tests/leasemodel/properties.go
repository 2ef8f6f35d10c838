package leasemodel

import "fmt"

// check returns what is wrong with a step or with the state after it, or nothing.
func (m model) check(from state, st step, to state) string {
	for e := range m.events {
		a, b := from.events[e], to.events[e]

		for _, wrong := range [...]string{
			once(b), counted(a, st, e == st.event, b), kept(a, b), m.firstOfLane(from, a, b),
		} {
			if wrong != "" {
				return fmt.Sprintf("e%d: %s", e+1, wrong)
			}
		}
	}

	if st.claim != current && changedTables(from, to) {
		return fmt.Sprintf("e%d: a delivery that had lost its lease changed the tables", st.event+1)
	}

	return m.lanes(&to)
}

// once: the effects of an event are committed once, or a plain handler finishes it once.
func once(ev event) string {
	if ev.effects > 1 {
		return "its effects were committed twice"
	}

	if ev.effects+ev.completed > 1 {
		return "it was completed twice"
	}

	return ""
}

// counted: every hand-out that a handler may have seen is an attempt, and attempts change in no other way.
func counted(a event, st step, mine bool, b event) string {
	if !b.row.exists {
		return ""
	}

	want := a.row.attempts

	if mine && a.row != b.row {
		switch st.verb {
		case storesLeased, claims, claimsTooOften, claimsProcessed:
			want++
		case givesBack:
			want--
		case requeues:
			want = 0
		}
	}

	if b.row.attempts != want {
		return fmt.Sprintf("its attempts are %d, not %d", b.row.attempts, want)
	}

	if b.seen > b.row.attempts {
		return fmt.Sprintf("%d handlers saw it, and %d attempts were counted", b.seen, b.row.attempts)
	}

	return ""
}

// kept: what was acked is in the ledger, stays as it is there, and its outputs are published.
func kept(a, b event) string {
	switch {
	case b.acked && b.ledger == absent:
		return "it was acked before it was stored"
	case b.ledger < a.ledger:
		return "its ledger row went back"
	case b.ledger == unprocessed && !b.row.exists:
		return "its payload is gone"
	case b.effects > 0 && !b.row.exists && !b.inBroker && !b.published && !b.discarded:
		return "its outputs are lost"
	default:
		return ""
	}
}

func changedTables(from, to state) bool {
	for e := range from.events {
		if a, b := from.events[e], to.events[e]; a.row != b.row || a.ledger != b.ledger || a.effects != b.effects {
			return true
		}
	}

	return false
}

// firstOfLane: an event is processed after those that were stored before it, unless one of those died.
func (m model) firstOfLane(from state, a, b event) string {
	if !m.lane || a.ledger == processed || b.ledger != processed || b.discarded {
		return ""
	}

	for e, other := range from.events {
		if other.ledger == unprocessed && other.row.seq < a.row.seq && !other.died {
			return fmt.Sprintf("it was processed before e%d", e+1)
		}
	}

	return ""
}

// lanes: of the undead rows of a lane one is active, no more and no less. Without lanes all of them are.
func (m model) lanes(s *state) string {
	undead, active, leased := 0, 0, 0

	for _, ev := range s.events {
		if !ev.row.exists || ev.row.dead {
			continue
		}

		undead++

		if ev.row.due != never {
			active++
		}

		if ev.row.owner != 0 {
			leased++
		}
	}

	switch {
	case !m.lane && active < undead:
		return "a row is neither dead nor due"
	case m.lane && active > 1:
		return "two rows of one lane are active"
	case m.lane && leased > 1:
		return "two rows of one lane are leased"
	case m.lane && undead > 0 && active == 0:
		return "a lane has rows and none is active"
	default:
		return ""
	}
}

// settled: every event is processed and its row is gone, or it is dead and listed.
func (m model) settled(s state) bool {
	for e := range m.events {
		ev := s.events[e]
		if !ev.row.dead && (ev.ledger != processed || ev.row.exists) {
			return false
		}
	}

	return true
}
