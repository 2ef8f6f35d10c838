package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// How often a message comes again.
const (
	atTheSameTime = 8
	oneByOne      = 3
	mostFaults    = 100 // statements of a handler that are made to fail
)

// RequireOnce requires that a message has its effect exactly once, whatever happens on the way. The message must be new
// to the inbox; it may be reused with another [Env]. The effect is a number that the handler raises by one for each
// message it handles, see [Count].
//
// The handler first fails after its work, panics after its work, fails in each of its statements in turn (the first 100),
// and has its commit refused: each time nothing may remain. Then copies of the message arrive at the same time, while the
// answer of the first commit is lost, and some more one by one: the effect must be there once, and the returned messages
// must have the same UUIDs each time. The first thing that is wrong ends the test with an explanation.
func RequireOnce[H Handler](t testing.TB, env *Env, handler H, msg *message.Message, effect func(db *sql.DB) int) {
	t.Helper()

	r := &requirement{t: t, env: env, msg: msg, effect: effect, handler: handlerFunc(handler)}
	r.before = effect(env.DB)

	r.consumer = startConsumer(t, env.Inbox, r.run)
	defer r.consumer.stop()
	defer env.faults.arm(plan{})

	r.failAfterWork()
	r.failStatements()
	r.refuseCommit()
	r.deliverAtOnce()
	r.deliverAgain()
}

// requirement is one call of RequireOnce. Its fields are written while no message is in flight, and by run, which the
// inbox lets nobody enter twice at a time for one event.
type requirement struct {
	t        testing.TB
	env      *Env
	msg      *message.Message
	effect   func(db *sql.DB) int
	handler  message.HandlerFunc
	consumer *consumer
	before   int

	afterWork func() error // what goes wrong when the handler has returned without an error

	runs      int
	err       error              // of the handler's latest run
	outputs   []*message.Message // of the handler's latest run
	first     sighting           // of the first run
	committed bool
	published []string // the UUIDs that a delivery published first
}

// run is the handler, with something going wrong after it.
func (r *requirement) run(msg *message.Message) ([]*message.Message, error) {
	r.runs++

	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return nil, errors.New("inboxtest: the inbox gave no transaction")
	}

	if _, err := tx.ExecContext(context.Background(), startOfHandler); err != nil {
		return nil, err
	}
	defer r.env.faults.leave()

	r.err = errPanicked
	r.outputs, r.err = r.handler(msg)

	if r.runs == 1 {
		r.first = r.env.faults.latest()
	}

	if r.err == nil && r.afterWork != nil {
		return nil, r.afterWork()
	}

	return r.outputs, r.err
}

func (r *requirement) failAfterWork() {
	r.t.Helper()

	r.afterWork = func() error { return errInjected }
	r.check("the handler did its work and then an error was returned", r.consumer.deliver(r.msg))

	r.afterWork = func() error { panic(errInjected) }
	r.check("the handler did its work and then panicked", r.consumer.deliver(r.msg))

	r.afterWork = nil
}

// failStatements goes on until there is none left to fail, or until the handler, and so the inbox, took a failed one well.
func (r *requirement) failStatements() {
	r.t.Helper()

	for n := 1; n <= mostFaults && !r.committed; n++ {
		r.env.faults.arm(plan{statement: n})

		r.afterWork = func() error {
			if r.env.faults.latest().failed == "" {
				return errInjected
			}

			return nil
		}

		d := r.consumer.deliver(r.msg)
		failed := r.env.faults.latest().failed
		r.check(fmt.Sprintf("statement %d of the handler failed: %s", n, failed), d)

		if failed == "" {
			break
		}
	}

	r.afterWork = nil
	r.env.faults.arm(plan{})
}

// refuseCommit lets the inbox run the handler twice on one delivery: a conflict is tried again at once.
func (r *requirement) refuseCommit() {
	r.t.Helper()

	if r.committed {
		return
	}

	r.env.faults.arm(plan{commits: []error{conflict{}, errInjected}})
	r.check("the commit collided with another transaction, and then was refused", r.consumer.deliver(r.msg))
}

func (r *requirement) deliverAtOnce() {
	r.t.Helper()
	r.env.faults.arm(plan{commits: []error{errAnswerLost}})

	var (
		deliveries [atTheSameTime]delivery
		all        sync.WaitGroup
	)

	for i := range deliveries {
		all.Go(func() { deliveries[i] = r.consumer.deliver(r.msg) })
	}

	all.Wait()
	r.env.faults.arm(plan{})

	outcome := deliveries[0]

	for _, d := range deliveries {
		if d.err == nil || errors.Is(d.err, errAnswerLost) {
			outcome = d

			break
		}
	}

	when := fmt.Sprintf("%d copies of the message were delivered at the same time and the answer of a commit was lost",
		atTheSameTime)
	r.check(when, outcome)

	if !r.committed {
		r.t.Fatalf("inboxtest: %s. None of them could be handled: %v", when, outcome.err)
	}

	for _, d := range deliveries {
		if d.err == nil {
			r.checkOutputs(d.outputs)
		}
	}
}

func (r *requirement) deliverAgain() {
	r.t.Helper()

	for range oneByOne {
		d := r.consumer.deliver(r.msg)
		r.check("the message was delivered again after it had been handled", d)

		if d.err != nil {
			r.t.Fatalf("inboxtest: the message was delivered again after it had been handled, and not acked: %v", d.err)
		}

		r.checkOutputs(d.outputs)
	}
}
