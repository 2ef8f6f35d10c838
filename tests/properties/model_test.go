package properties_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// model is what an inbox is, without the database: a set of events with the outputs of their handlers.
type model struct {
	processed map[event][]string
	effects   map[string]int
}

func newModel() *model {
	return &model{processed: make(map[event][]string), effects: make(map[string]int)}
}

func (m *model) forgot(ev event, known bool) error {
	if _, want := m.processed[ev]; known != want {
		return fmt.Errorf("forgetting %v: known %t, want %t", ev, known, want)
	}

	delete(m.processed, ev)

	return nil
}

// delivered takes the results of deliveries that were made at once.
func (m *model) delivered(group []*delivery) error {
	byEvent := make(map[event][]*delivery)
	for _, d := range group {
		byEvent[d.event] = append(byEvent[d.event], d)
	}

	for ev, copies := range byEvent {
		if err := m.deliveredCopies(ev, copies); err != nil {
			return err
		}
	}

	return nil
}

// deliveredCopies knows that copies are handled one after another, in an order that it does not know: some fail, at most
// one commits, and the rest find it committed.
func (m *model) deliveredCopies(ev event, copies []*delivery) error {
	_, known := m.processed[ev]

	for _, d := range copies {
		switch {
		case d.committed == 0:
		case known:
			return fmt.Errorf("%s: the event is processed twice", d.attempt)
		default:
			known = true
			m.processed[ev] = d.made
			m.effects[d.effect()]++
		}
	}

	for _, d := range copies {
		if !known && d.outcome.leavesEffect() {
			return fmt.Errorf("%s: the event is not processed", d.attempt)
		}

		if !known && d.runs == 0 {
			return fmt.Errorf("%s: the handler did not run", d.attempt)
		}

		if err := d.check(m.processed[ev]); err != nil {
			return fmt.Errorf("%s: %w", d.attempt, err)
		}
	}

	return nil
}

// check compares what the middleware returned. stored is what the event's handler returned when it was committed.
func (d *delivery) check(stored []string) error {
	if d.committed > 1 {
		return errors.New("committed more than once")
	}

	// It was committed, or it is a duplicate: without a run, or with one in an attempt that PostgreSQL ended.
	if d.runs == 0 || d.outcome.leavesEffect() && (d.outcome != commitsItself || d.committed == 0) {
		if d.err != nil || d.panicked != nil || !slices.Equal(d.returned, stored) {
			return fmt.Errorf("no clean end, or outputs %q instead of %q", d.returned, stored)
		}

		return nil
	}

	if len(d.returned) > 0 {
		return fmt.Errorf("outputs %q", d.returned)
	}

	ok := false

	switch d.outcome {
	case fails, failsWithOutputs:
		ok = errors.Is(d.err, errHandler) && d.panicked == nil
	case panics:
		ok = d.panicked == any(errHandler)
	case skips:
		ok = d.err == nil && d.panicked == nil
	case obeysCancellation:
		ok = errors.Is(d.err, context.Canceled) && d.panicked == nil
	case commitsItself, rollsBackItself, swallowsSQLError:
		ok = d.err != nil && d.panicked == nil
	}

	if !ok {
		return errors.New("wrong error or panic")
	}

	return nil
}

// compare looks at the database.
func (m *model) compare(t *testing.T, db *testdb.DB) {
	t.Helper()

	if effects := db.Effects(t); !maps.Equal(effects, m.effects) {
		t.Errorf("effects %v, in the model %v", effects, m.effects)
	}

	if n := db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")); n != len(m.processed) {
		t.Errorf("%d events in the inbox, %d in the model", n, len(m.processed))
	}

	withOutputs := maps.Clone(m.processed)
	maps.DeleteFunc(withOutputs, func(_ event, outputs []string) bool { return len(outputs) == 0 })

	if n := db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_outputs")); n != len(withOutputs) {
		t.Errorf("outputs of %d events in the inbox, of %d in the model", n, len(withOutputs))
	}
}
