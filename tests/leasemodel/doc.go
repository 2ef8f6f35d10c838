// Package leasemodel is the protocol of store-then-process as a small model, and a search through every state that the
// model can get into. Run it in the module tests:
//
//	go test ./leasemodel     # -v for the number of states, and a schedule for each rule that is taken out
//
// Two workers and, in one scenario, a process in same-transaction mode work on one to three events. A step is one
// transaction of theirs, or one statement of a transaction that stays open while a handler runs, or something that
// happens to them: a crash, the end of a lease, an answer that does not come, a redelivery, an operator. Steps follow each
// other in any order. Time is not modelled: a lease may end at any moment, and a pause before a retry is over at once. A
// worker that stalls is one that makes no step while others do, and then goes on with what it remembers. Misfortunes
// are limited, three or four to a schedule; everything else is not.
//
// These must hold in every state or step, see properties.go:
//
//   - the effects of an event are committed once, and its completion recorded once;
//   - a delivery that has lost its lease changes nothing;
//   - what was acked to the broker is in the ledger, and keeps its payload until it is processed;
//   - stored outputs are published;
//   - every hand-out that a handler may have seen is counted, except one that it gave back itself at closing;
//   - of the undead rows of a lane exactly one is active and at most one leased, and the events are processed in the order
//     in which they were stored, unless one of them died;
//   - from every state, all events can still be finished or be found among the dead.
//
// The second test takes one rule at a time out of the protocol and wants to see a schedule that breaks a property.
//
// Where the rules are in the code; the statements of all of them are in the dialect files, and the transactions around
// them in queue.go:
//
//	store.go     storing, and the ack after it             intake.go
//	handout.go   claiming, giving back, renewing           handout.go, lease.go
//	finish.go    Ack, Nack, death, InTx and the middleware settle.go, delivery.go
//	lane.go      whose turn it is, requeueing, discarding  lanes.go, deadletters.go
//	sametx.go    taking over in same-transaction mode      middleware.go
//
// Whoever changes a rule there changes it here first.
package leasemodel
