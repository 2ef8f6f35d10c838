package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jmoiron/sqlx"
)

// scope is what a handler's context knows of the inbox: one attempt at one event.
type scope struct {
	task

	inbox  *Inbox
	parent *scope // of another inbox's middleware around this one
	conn   *sqlx.Conn
	tx     *sqlx.Tx

	takenOver bool // the event was stored, see repository.takeOver

	mu          sync.Mutex
	ended       bool
	afterCommit []func(context.Context)
	savepoints  int   // open ones
	broken      error // why the transaction must not be committed
}

type scopeKey struct{}

func scopeFrom(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)

	return s
}

// enclosing returns the scope of a handler at work inside of which this inbox is being asked again, or nil. Another Inbox
// value on the same table of the same pool counts as this one, see isSameAs.
func (ib *Inbox) enclosing(ctx context.Context) *scope {
	for s := scopeFrom(ctx); s != nil; s = s.parent {
		if s.open() && s.inbox.isSameAs(ib) {
			return s
		}
	}

	return nil
}

func (ib *Inbox) isSameAs(other *Inbox) bool {
	return ib.repo.db.DB == other.repo.db.DB && ib.tables == other.tables
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

// lend puts the scope into the message's context for the time of a handler. A handler may change the message, too, which
// must not change the event for the next attempt, for the middlewares outside, or for a broker that delivers this very
// message again (watermill-kafka and watermill-sql do).
func (s *scope) lend(ctx context.Context) (takeBack func()) {
	msg := s.msg
	original, uuid, metadata, payload := msg.Context(), msg.UUID, msg.Metadata, msg.Payload

	handlerCtx, cancel := context.WithValue(original, scopeKey{}, s), context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		// A driver ends a running statement by the context of the statement, not by that of the transaction.
		handlerCtx, cancel = context.WithDeadline(handlerCtx, deadline)
	}

	msg.SetContext(handlerCtx)
	msg.Metadata = maps.Clone(metadata)

	return func() {
		cancel()

		s.end()
		msg.SetContext(original)
		msg.UUID, msg.Metadata, msg.Payload = uuid, metadata, payload
	}
}

// end makes the transaction the inbox's own again.
func (s *scope) end() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ended = true
}

// atWork returns the scope of the handler, or of the [InTx] of a stored message, that runs in this context, or nil.
func atWork(ctx context.Context) *scope {
	if s := scopeFrom(ctx); s.open() {
		return s
	}

	if s := deliveryFrom(ctx).scope(); s.open() {
		return s
	}

	return nil
}

// detachAll makes outputs that stay as they are when the message is taken back: they are published after the commit, when
// the handler's context has ended and the message has its own contents again.
func (s *scope) detachAll(outputs []*message.Message) []*message.Message {
	for i, output := range outputs {
		if output == nil || scopeFrom(output.Context()) != s {
			continue
		}

		if output == s.msg {
			outputs = slices.Clone(outputs)
			outputs[i] = output.CopyWithContext()
		}

		// Nor may a Pub/Sub that preserves contexts give somebody else the incoming message's delivery.
		outputs[i].SetContext(context.WithValue(context.WithoutCancel(output.Context()), deliveryKey{}, (*delivery)(nil)))
	}

	return outputs
}

// TxFromContext returns the transaction in which the event of this message context is being handled. Whatever is
// written through it is committed together with the record of the event, or not at all. It is for the handler to use and
// for the inbox to end: a Commit or Rollback of the handler's own makes the middleware return an error, and a transaction
// that the handler puts in its place by plain statements (ROLLBACK and BEGIN, COMMIT AND CHAIN) is outside of every
// guarantee on PostgreSQL. It reports false outside of a handler, and after the handler returned.
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
	if s := atWork(ctx); s != nil {
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

	if d := deliveryFrom(ctx); d != nil {
		return d.event, true
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
	s := atWork(ctx)
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

// InTx runs fn in a transaction that is committed together with the record of the event.
//
// Inside [Inbox.Middleware] that is the middleware's transaction, and fn runs in a savepoint: when it returns an error or
// panics, what it wrote is undone and the handler may go on, or return the error to have everything undone.
//
// For a stored message without the middleware it is a transaction of its own, which also completes the message if it is still
// leased to this worker; [ErrLeaseLost] if not. No transaction is open before and after, so a slow call belongs in front of
// InTx. Once it has returned nil, the message is finished, whatever the handler returns. When the event was processed before,
// it returns nil and fn does not run. fn runs again after a serialization failure or deadlock, as a handler does. A second
// InTx of the same attempt therefore does nothing.
//
// Calls can be nested but not made concurrently: a transaction is one connection, and what joins it from another goroutine is
// lost with it even after returning nil. Without an inbox around the
// handler, or when fn is nil, it returns an error. The end of ctx does not end the transaction.
func InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if fn == nil {
		return errors.New("inbox: InTx: function is nil")
	}

	if s := atWork(ctx); s != nil {
		return s.inSavepoint(context.WithoutCancel(ctx), fn)
	}

	if d := deliveryFrom(ctx); d != nil && scopeFrom(ctx) == nil {
		return d.inTx(ctx, fn)
	}

	return fmt.Errorf("inbox: %w", errNoTx)
}

func (s *scope) inSavepoint(ctx context.Context, fn func(tx *sql.Tx) error) (err error) {
	s.mu.Lock()
	s.savepoints++
	name := fmt.Sprintf("inbox_%d", s.savepoints)
	registered := len(s.afterCommit)
	s.mu.Unlock()

	finished := false // a panic of fn's leaves it so

	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.savepoints--

		if !finished || err != nil {
			s.afterCommit = s.afterCommit[:registered]
		}
	}()

	if _, err := s.tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return fmt.Errorf("inbox: InTx: %w", err)
	}

	defer func() {
		if finished && err == nil {
			return
		}

		if _, undoErr := s.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+name); undoErr != nil {
			undoErr = fmt.Errorf("undoing the savepoint of InTx: %w", undoErr)
			err = errors.Join(err, undoErr)

			s.mu.Lock()
			s.broken = undoErr
			s.mu.Unlock()
		}
	}()

	if err = fn(s.tx.Tx); err == nil {
		_, err = s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+name)
	}

	finished = true

	return err
}

// commit ends the transaction for good, unless it is half done or not the one any more that began with the claim.
func (ib *Inbox) commit(ctx context.Context, s *scope) error {
	if err := s.obstacle(); err != nil {
		return err
	}

	err := ib.repo.checkClaim(ctx, s)
	if err == nil {
		err = s.tx.Commit()
	}

	if errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil {
		return fmt.Errorf("the handler ended the transaction itself: %w", err)
	}

	return err
}

func (s *scope) obstacle() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.savepoints > 0 {
		return errors.New("an InTx was still running when the handler returned")
	}

	return s.broken
}

// release rolls back, which does nothing after the commit, and gives the connection back to the pool.
func (s *scope) release() {
	_ = s.tx.Rollback() // an error leaves it to the server, which rolls back when the connection ends
	_ = s.conn.Close()
}

// failed says what failed for which event, and why when a timeout of the inbox's was behind it.
func (s *scope) failed(ctx context.Context, doing string, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(err, context.DeadlineExceeded):
		err = cause // which says the same and more
	default:
		err = fmt.Errorf("%w: %w", cause, err)
	}

	return fmt.Errorf("inbox: %s event %s: %w", doing, s.event, err)
}
