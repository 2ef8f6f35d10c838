package inboxtest

import (
	"errors"
	"sync"
)

var (
	errInjected = errors.New("inboxtest: injected failure")
	errPanicked = errors.New("the handler panicked")
)

// conflict looks like a serialization failure to PostgreSQL's dialect and like a busy database to SQLite's.
type conflict struct{}

func (conflict) Error() string    { return "inboxtest: injected conflict with another transaction" }
func (conflict) SQLState() string { return "40001" }
func (conflict) Code() int        { return 5 }
func (conflict) Unwrap() error    { return errInjected }

var errAnswerLost = errors.New("inboxtest: the commit succeeded but its answer was lost")

// plan is what goes wrong.
type plan struct {
	statement int     // of the handler fails, counted from 1
	commits   []error // fail so, one after another; errAnswerLost after having committed
}

// faults is what the connections of the inbox are told to do, and what they saw the handler do.
type faults struct {
	mu      sync.Mutex
	plan    plan
	working *conn // of the transaction in which the handler is running, if it is
	seen    sighting
}

// sighting is what a handler did in its latest run.
type sighting struct {
	statements int    // sent through the transaction
	failed     string // the statement that was made to fail
	ended      bool   // it committed or rolled back
}

func (f *faults) arm(p plan) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.plan = p
}

// startOfHandler is sent through a transaction to tell which connection it is on. It gets no further than that.
const startOfHandler = "inboxtest: the handler starts"

func (f *faults) enter(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.working, f.seen = c, sighting{}
}

// leave is called when the handler is done, with its work or for good.
func (f *faults) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.working = nil
}

func (f *faults) latest() sighting {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.seen
}

// onStatement returns an error for a statement that must fail.
func (f *faults) onStatement(c *conn, query string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.working != c {
		return nil
	}

	f.seen.statements++
	if f.seen.statements != f.plan.statement {
		return nil
	}

	f.seen.failed = query

	return errInjected
}

// onEnd is told of a commit or rollback, and returns what to do to a commit.
func (f *faults) onEnd(c *conn, commit bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	if f.working == c {
		f.seen.ended = true

		return nil
	}

	if !commit || len(f.plan.commits) == 0 {
		return nil
	}

	err := f.plan.commits[0]
	f.plan.commits = f.plan.commits[1:]

	return err
}
