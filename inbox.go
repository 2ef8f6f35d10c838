package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Inbox remembers which events were handled, in a table of the database that the handlers write to. It is safe for
// concurrent use and needs no closing. Only its subscribers start goroutines, which end when they are closed.
type Inbox struct {
	*config

	repo      *repository
	running   registry
	repeating atomic.Bool // the last event looked at had been handled before
	warned    warnings
	failing   failing
}

// New returns an inbox on a database. It does not connect: missing tables show at the first message as
// [ErrNotMigrated]. A nil db, an unknown dialect or a bad option is an error that names it.
//
// The pool of db bounds how many events are handled at once, and a concurrent duplicate holds a connection while it
// waits; a handler that uses db beside its transaction needs a second one.
func New(db *sql.DB, dialect Dialect, opts ...Option) (*Inbox, error) {
	if db == nil {
		return nil, errors.New("inbox: db is nil")
	}

	c, err := newConfig(dialect, opts)
	if err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}

	return &Inbox{config: c, repo: newRepository(db, c)}, nil
}

// Forget removes the record of an event and its stored outputs, so that the next delivery runs the handler again. It
// reports whether there was a record. Consumer, Source and ID must be what the middleware found in the message (see
// [EventFromContext]), and so must Time when [WithEventTime] provided it. An event that is being handled right now in
// same-transaction mode is not known yet and stays. A stored message goes with its event, and a worker that has it loses its
// lease.
func (ib *Inbox) Forget(ctx context.Context, ev Event) (bool, error) {
	switch {
	case ev.ID == "":
		return false, fmt.Errorf("inbox: %w: forgetting %s", ErrNoEventID, ev)
	case ev.Consumer == "":
		return false, fmt.Errorf("inbox: %w: forgetting %s", ErrNoConsumer, ev)
	}

	var known bool

	err := ib.retryTransient(func() (err error) {
		known, err = ib.repo.forget(ctx, KeyOf(ev))

		return err
	}, nil)
	if err != nil {
		return false, fmt.Errorf("inbox: forgetting event %s: %w", ev, err)
	}

	return known, nil
}

// The pause before a transaction is run again is random, so that transactions which got into each other's way do not do
// so again, and grows from retryPause to maxRetryPause ("full jitter",
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
const (
	retryPause    = 2 * time.Millisecond
	maxRetryPause = 100 * time.Millisecond
)

// retryTransient runs a transaction again, up to WithMaxTxRetries times, while it fails for reasons that lie in its
// timing, and calls beforeRetry, if there is one, with the error. No transaction is open during the pauses.
func (ib *Inbox) retryTransient(transaction func() error, beforeRetry func(error)) error {
	pause := retryPause

	for retry := 0; ; retry++ {
		err := transaction()
		if err == nil || retry == ib.txRetries || !ib.engine.isTransient(err) || errors.Is(err, ErrInFlight) {
			return err
		}

		if beforeRetry != nil {
			beforeRetry(err)
		}

		time.Sleep(rand.N(pause))

		pause = min(2*pause, maxRetryPause)
	}
}
