package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
)

// scope is what a handler's context knows of the inbox: one attempt at one event.
type scope struct {
	msg   *message.Message
	event Event
	key   Key
	tx    *sqlx.Tx

	mu          sync.Mutex
	ended       bool
	afterCommit []func(context.Context)
	savepoints  int
	broken      error // why the transaction must not be committed
}

type scopeKey struct{}

func scopeFrom(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)

	return s
}

// open reports whether the handler is still running.
func (s *scope) open() bool {
	if s == nil {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	return !s.ended
}

// end takes the transaction away from the handler's context.
func (s *scope) end() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ended = true
}

// TxFromContext returns the transaction in which the event of this message context is being handled. Whatever is
// written through it is committed together with the record of the event, or not at all. It is for the handler to use and
// for the inbox to end: a Commit or Rollback of the handler's own makes the middleware return an error. It reports false
// outside of a handler, and after the handler returned.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := SqlxTxFromContext(ctx)
	if !ok {
		return nil, false
	}

	return tx.Tx, true
}

// SqlxTxFromContext returns the same transaction as [TxFromContext] with sqlx around it. Named queries get the
// placeholders of the inbox's dialect.
func SqlxTxFromContext(ctx context.Context) (*sqlx.Tx, bool) {
	if s := scopeFrom(ctx); s.open() {
		return s.tx, true
	}

	return nil, false
}

// EventFromContext returns the event that is being handled. Its ID is what external services should get as the
// idempotency key.
func EventFromContext(ctx context.Context) (Event, bool) {
	if s := scopeFrom(ctx); s != nil {
		return s.event, true
	}

	return Event{}, false
}

// AfterCommit has fn called once the transaction of the handler is committed, before outputs are published and the
// message is acked. It is for effects that must not happen when the transaction is rolled back and may be lost when the
// process dies right after the commit: waking a worker, dropping a cache entry. What must not be lost belongs into a
// returned message. Functions run in the order of registration on the handler's goroutine, with a context that has the
// message's values but neither its cancellation nor the transaction; a panic is logged and stops no other function. When the
// attempt is rolled back, or the [InTx] in which fn was registered, fn is dropped.
//
// It reports false, and keeps nothing, when fn is nil or ctx is not that of a handler at work.
func AfterCommit(ctx context.Context, fn func(ctx context.Context)) bool {
	s := scopeFrom(ctx)
	if s == nil || fn == nil {
		return false
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ended {
		return false
	}

	s.afterCommit = append(s.afterCommit, fn)

	return true
}

// InTx runs fn in the transaction of the event that is being handled, inside a savepoint: when fn returns an error or
// panics, what it wrote is undone and the handler may go on, or return the error to have everything undone. Calls can be
// nested but not made concurrently, since a transaction is one connection. Without an inbox around the handler it
// returns an error.
func InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if fn == nil {
		return errors.New("inbox: InTx: function is nil")
	}

	s := scopeFrom(ctx)
	if !s.open() {
		return fmt.Errorf("inbox: %w", errNoTx)
	}

	return s.inSavepoint(context.WithoutCancel(ctx), fn)
}

func (s *scope) inSavepoint(ctx context.Context, fn func(tx *sql.Tx) error) (err error) {
	s.savepoints++
	name := fmt.Sprintf("inbox_%d", s.savepoints)
	registered := len(s.afterCommit)

	if _, err := s.tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return fmt.Errorf("inbox: InTx: %w", err)
	}

	returned := false

	defer func() {
		s.savepoints--

		if returned && err == nil {
			return
		}

		s.mu.Lock()
		s.afterCommit = s.afterCommit[:registered]
		s.mu.Unlock()

		if _, undoErr := s.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+name); undoErr != nil {
			s.broken = fmt.Errorf("inbox: InTx: undoing a savepoint: %w", undoErr)
			err = errors.Join(err, s.broken)
		}
	}()

	if err = fn(s.tx.Tx); err == nil {
		_, err = s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+name)
	}

	returned = true

	return err
}

// commit ends the transaction for good.
func (s *scope) commit(ctx context.Context) error {
	if s.broken != nil {
		return s.broken
	}

	err := s.tx.Commit()

	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("committing: WithTxTimeout ended the transaction: %w", errors.Join(ctx.Err(), err))
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("committing: the handler ended the transaction itself: %w", err)
	default:
		return fmt.Errorf("committing: %w", err)
	}
}
