package inbox

import "errors"

// Sentinel errors. They are returned wrapped with what happened to which event, so compare with [errors.Is].
var (
	// ErrNoEventID is returned for a message in which none of the event-id functions found an id. The message is
	// neither handled nor dropped: the error nacks it, and a poison queue that filters on this error can take it.
	ErrNoEventID = errors.New("message has no event id")

	// ErrNoConsumer is returned when the consumer's name is empty: the middleware runs outside a
	// [message.Router] and [WithConsumer] is not set, or the function given to WithConsumer returned "".
	ErrNoConsumer = errors.New("message has no consumer")

	// ErrAlreadyAcked is returned for a message that was acked or nacked before the middleware saw it, as
	// Watermill's InstantAck does: an inbox cannot hold its promises for it.
	ErrAlreadyAcked = errors.New("message was acked or nacked before the inbox")

	// ErrInFlight is returned when another transaction was still working on the same event after the time set
	// with [WithLockTimeout]. The nacked message comes again, and then is a duplicate or is handled.
	ErrInFlight = errors.New("event is in flight elsewhere")

	// ErrLeaseLost is returned by [InTx] and the middleware, and is the cause of the cancelled context, when the lease on a
	// stored message has ended and another worker may have it, or the handler has acked or nacked it before: nothing of this
	// attempt is recorded any more.
	ErrLeaseLost = errors.New("lease on the stored message was lost")

	// ErrSkip is for handlers to return, wrapped or not: the transaction is rolled back, nothing is recorded,
	// outputs are dropped and the message is acked. The next delivery of the event runs the handler again. A message
	// that was stored by [Inbox.Subscriber] is finished without effect; the inbox sees the error when its middleware
	// or [InTx] does.
	ErrSkip = errors.New("skip event")

	// ErrNotMigrated is returned when the inbox's tables are missing or from an older version of the library.
	ErrNotMigrated = errors.New("inbox tables are missing or outdated: call Inbox.Migrate, or apply the SQL that inbox.Schema returns")
)

var (
	errNoTx     = errors.New("InTx needs the context of a message that an inbox is handling")
	errPanicked = errors.New("handler panicked")
	errNacked   = errors.New("message was nacked")
)
