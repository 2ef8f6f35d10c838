package inboxtest

import (
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

const useTx = "Write through the transaction of inbox.TxFromContext(msg.Context()), and through nothing else."

// check compares the effect with what it has to be after a delivery: nothing until the first that was committed,
// one from then on.
func (r *requirement) check(when string, d delivery) {
	r.t.Helper()
	r.checkReachable(d)

	seen := r.env.faults.latest()
	if seen.ended {
		r.t.Fatalf("inboxtest: the handler committed or rolled back the transaction itself. That is for the inbox to do, "+
			"after the handler returned and together with the record of the event (%s).", when)
	}

	fresh := !r.committed && (d.err == nil || errors.Is(d.err, errAnswerLost))
	r.committed = r.committed || fresh

	if fresh {
		r.checkIDs()
	}

	effect := r.effect(r.env.DB) - r.before

	switch {
	case !r.committed && effect != 0:
		r.t.Fatalf("inboxtest: %s. The transaction was rolled back, and yet the effect is %+d instead of 0: the handler "+
			"writes outside of the transaction, through a *sql.DB or a connection of its own, and each redelivery "+
			"does so again. %s", when, effect, useTx)
	case fresh && effect == 0:
		r.explainMissing(when, seen)
	case fresh && effect != 1 && seen.failed != "":
		r.explainSwallowed(when, effect)
	case fresh && effect != 1:
		r.t.Fatalf("inboxtest: %s. The handler ran to its end and was committed once, and the effect is %+d instead of +1: "+
			"what it counts must be raised by one for each message (count orders, not their rows), and the handler must "+
			"keep nothing from runs that were rolled back.", when, effect)
	case r.committed && effect != 1:
		r.t.Fatalf("inboxtest: %s. The effect is %+d instead of the +1 that it had been: something writes outside of the "+
			"transaction and later than the handler, such as a goroutine or a hook.", when, effect)
	}
}

// checkReachable looks for handlers that fail without being made to, and for messages that do not get to the handler.
func (r *requirement) checkReachable(d delivery) {
	r.t.Helper()

	var database interface{ Code() int }

	switch {
	case r.runs == 0 && d.err == nil:
		r.t.Fatalf("inboxtest: the inbox knows this event already and did not run the handler: " +
			"give RequireOnce a message with an id of its own.")
	case r.runs == 0:
		r.t.Fatalf("inboxtest: the message did not get to the handler: %v", d.err)
	case r.err == nil || errors.Is(r.err, errInjected) || r.env.faults.latest().failed != "":
		return
	case errors.Is(r.err, errPanicked):
		r.t.Fatalf("inboxtest: the handler panicked in run %d, and nothing was made to fail in it: %v", r.runs, d.err)
	case errors.Is(r.err, inbox.ErrSkip):
		r.t.Fatalf("inboxtest: the handler skipped the message (%v): nothing is recorded then. Use one that it handles.", r.err)
	case errors.As(r.err, &database) && slices.Contains([]int{5, 6}, database.Code()&0xff): // SQLITE_BUSY, SQLITE_LOCKED
		r.t.Fatalf("inboxtest: the handler could not write, because the database is locked by the transaction that the inbox "+
			"gave it. It writes through another connection, such as a *sql.DB. %s (%v)", useTx, r.err)
	case r.runs == 1:
		r.t.Fatalf("inboxtest: the handler failed, and nothing had been made to fail yet: %v", r.err)
	default:
		r.t.Fatalf("inboxtest: the handler failed in run %d, although it works in the first and nothing was made to fail in this "+
			"one. It may remember what it did in runs that were rolled back: %v", r.runs, r.err)
	}
}

func (r *requirement) explainMissing(when string, seen sighting) {
	r.t.Helper()

	switch {
	case seen.failed != "":
		r.explainSwallowed(when, 0)
	case r.first.statements > seen.statements:
		r.t.Fatalf("inboxtest: %s. The handler returned nil and the event is recorded, but the effect is missing. In the "+
			"first run, which was rolled back, the handler sent %d statements and in this one %d: it remembers in memory (a map, a "+
			"sync.Once, a cache) what the database has forgotten. The inbox remembers for you.",
			when, r.first.statements, seen.statements)
	case seen.statements == 0:
		r.t.Fatalf("inboxtest: %s. The handler returned nil and the event is recorded, but the effect is missing, and nothing "+
			"was sent through the transaction. %s", when, useTx)
	default:
		r.t.Fatalf("inboxtest: %s. The handler returned nil and the event is recorded, but the effect is missing although "+
			"it sent %d statements through the transaction. Does the effect count what they write?", when, seen.statements)
	}
}

func (r *requirement) explainSwallowed(when string, effect int) {
	r.t.Helper()
	r.t.Fatalf("inboxtest: %s. The handler returned nil all the same, so the event is recorded as handled, with an effect of %+d "+
		"instead of +1, for good. Return errors of statements; work that may fail belongs into inbox.InTx.", when, effect)
}

// checkIDs requires that whoever receives the messages that were returned can tell them apart.
func (r *requirement) checkIDs() {
	r.t.Helper()

	uuids := make(map[string]bool)
	ids := make(map[string]bool)

	for i, msg := range r.outputs {
		id := msg.Metadata.Get("event_id")

		switch {
		case msg.UUID == "":
			r.t.Fatalf("inboxtest: returned message %d of %d has no UUID: its receivers cannot tell its redelivery from another "+
				"message. Use message.NewMessage(watermill.NewUUID(), ...).", i+1, len(r.outputs))
		case uuids[msg.UUID]:
			r.t.Fatalf("inboxtest: returned message %d of %d has the UUID of another one: an inbox takes it for a duplicate. Make a "+
				"UUID for each.", i+1, len(r.outputs))
		case id != "" && ids[id]:
			r.t.Fatalf("inboxtest: returned message %d of %d has the metadata event_id of another one: an inbox takes it for a "+
				"duplicate. Do not copy that from the message that is being handled.", i+1, len(r.outputs))
		}

		uuids[msg.UUID], ids[id] = true, true
	}
}

// checkOutputs requires that each delivery returns what the handler returned when it was committed, or, where the inbox
// has put that into an outbox, that none returns anything.
func (r *requirement) checkOutputs(outputs []*message.Message) {
	r.t.Helper()

	if r.published == nil {
		r.published = uuidsOf(outputs)
	}

	want := uuidsOf(r.outputs)
	if len(r.published) == 0 {
		want = r.published
	}

	if got := uuidsOf(outputs); !slices.Equal(got, want) {
		r.t.Fatalf("inboxtest: the handler returned messages with the UUIDs %q, and a delivery published %q: does something "+
			"change them after they were returned?", want, got)
	}
}

func uuidsOf(messages []*message.Message) []string {
	uuids := make([]string, len(messages))
	for i, msg := range messages {
		uuids[i] = msg.UUID
	}

	return uuids
}
