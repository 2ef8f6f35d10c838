package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
)

// repository runs the engine's statements.
type repository struct {
	db       *sqlx.DB
	engine   engine
	tables   tables
	queries  queries
	txOpts   *sql.TxOptions
	lockWait time.Duration
	stmts    statements // of handlers' transactions

	batchStmts statements // of the inbox's own transactions
	writing    sync.Mutex // held by the inbox's own transactions where the engine has one writer
}

func newRepository(db *sql.DB, c *config) *repository {
	return &repository{
		db:       sqlx.NewDb(db, c.engine.bindDriver()),
		engine:   c.engine,
		tables:   c.tables,
		queries:  c.engine.queries(c.tables, c.lockWait),
		txOpts:   c.txOptions,
		lockWait: c.lockWait,
		stmts:    statements{unprepared: c.unprepared},

		batchStmts: statements{unprepared: c.unprepared},
	}
}

// begin starts a transaction on a connection of its own, for the scope to release. The statements that run in it are
// prepared before, so that one connection is enough.
func (r *repository) begin(ctx context.Context, s *scope) error {
	err := r.stmts.prepare(ctx, r.db.DB, r.queries.claim, r.queries.known, r.queries.storeOutputs, r.queries.loadOutputs,
		r.queries.hold, r.queries.stillHeld)
	if err != nil {
		return r.explain(ctx, r.db, err)
	}

	// After a restart of the server every idle connection of the pool may turn out to be broken, and is discarded here.
	for tries := 1 + r.db.Stats().Idle; ; tries-- {
		s.conn, err = r.db.Connx(ctx)
		if err != nil {
			return err
		}

		s.tx, err = s.conn.BeginTxx(ctx, r.txOpts)
		if err == nil {
			return nil
		}

		_ = s.conn.Close() // it never became usable

		if tries <= 0 || !errors.Is(err, driver.ErrBadConn) {
			return err
		}
	}
}

// ready reports ErrNotMigrated before anything is stored.
func (r *repository) ready(ctx context.Context) error {
	return r.inBatch(ctx, func(tx *sql.Tx) error {
		for _, probe := range r.queries.probes {
			if _, err := tx.ExecContext(ctx, probe); err != nil {
				return err
			}
		}

		return nil
	})
}

func (r *repository) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (affected int64, err error) {
	res, err := r.stmts.exec(ctx, tx, query, args...)
	if err != nil {
		return 0, r.explain(ctx, tx, err)
	}

	return res.RowsAffected()
}

// explain turns the many faces of a missing table into ErrNotMigrated.
func (r *repository) explain(ctx context.Context, db querier, err error) error {
	if r.engine.isMissingTable(ctx, db, r.tables, err) {
		return fmt.Errorf("%w: %w", ErrNotMigrated, err)
	}

	return err
}

// claim writes the event's row, waiting for other transactions that wrote the same one. It reports false when the row
// is there already.
func (r *repository) claim(ctx context.Context, tx *sql.Tx, key Key, ev Event) (fresh bool, err error) {
	restore, err := r.engine.limitLockWait(ctx, tx, r.lockWait)
	if err != nil {
		return false, err
	}

	affected, err := r.exec(ctx, tx, r.queries.claim,
		r.engine.keyArg(key), printable(ev.Consumer), printable(ev.Source), printable(ev.ID), printable(ev.Type))
	if err == nil {
		return affected == 1, restore()
	}

	if r.lockWait > 0 && r.engine.isLockTimeout(err) {
		err = fmt.Errorf("%w: waited %s for it: %w", ErrInFlight, r.lockWait, err)
	}

	return false, errors.Join(err, restore())
}

// checkClaim returns sql.ErrTxDone when the transaction of the claim was ended by a COMMIT or ROLLBACK sent as a plain
// statement, which database/sql does not notice.
func (r *repository) checkClaim(ctx context.Context, s *scope) error {
	open, err := r.engine.inClaim(ctx, s.conn.Conn, s.tx.Tx, r.queries, s.key)
	if err == nil && !open {
		err = sql.ErrTxDone
	}

	return err
}

// known reports whether an event is on record as handled, by a transaction that is committed. Where that cannot be found
// out it reports false, and the claim that follows says why.
func (r *repository) known(ctx context.Context, key Key) (known bool) {
	err := r.stmts.queryRow(ctx, r.db.DB, nil, r.queries.known, r.engine.keyArg(key)).Scan(&known)

	return err == nil && known
}

// storeOutputs keeps the encoded outputs of an event that was claimed in the same transaction.
func (r *repository) storeOutputs(ctx context.Context, tx *sql.Tx, key Key, encoded []byte) error {
	affected, err := r.exec(ctx, tx, r.queries.storeOutputs, r.engine.keyArg(key), encoded)
	if err != nil {
		return err
	}

	if affected == 0 {
		return errors.New("the event's row is gone: the handler ended the transaction")
	}

	return nil
}

// loadOutputs returns nil when the event has none. It reads outside of any transaction when tx is nil.
func (r *repository) loadOutputs(ctx context.Context, tx *sql.Tx, key Key) (encoded []byte, err error) {
	err = r.stmts.queryRow(ctx, r.db.DB, tx, r.queries.loadOutputs, r.engine.keyArg(key)).Scan(&encoded)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}

	if err == nil {
		return encoded, nil
	}

	if tx != nil {
		return nil, r.explain(ctx, tx, err) // on the connection at hand: there may be no other
	}

	return nil, r.explain(ctx, r.db, err)
}

// forget removes every trace of an event.
func (r *repository) forget(ctx context.Context, key Key) (known bool, err error) {
	err = r.inBatch(ctx, func(tx *sql.Tx) error {
		lanes, err := r.lanesOfKeys(ctx, tx, column{key.hex()})
		if err != nil {
			return err
		}

		if err := r.lockLanes(ctx, tx, lanes); err != nil {
			return err
		}

		for _, query := range []string{r.queries.forgetMessage, r.queries.forgetOutput, r.queries.forgetFailure} {
			if _, err := tx.ExecContext(ctx, query, r.engine.keyArg(key)); err != nil {
				return err
			}
		}

		if err := r.promote(ctx, tx, lanes); err != nil {
			return err
		}

		res, err := tx.ExecContext(ctx, r.queries.forget, r.engine.keyArg(key))
		if err != nil {
			return err
		}

		affected, err := res.RowsAffected()
		known = affected == 1

		return err
	})

	return known, err
}

// inTx runs fn in a transaction of its own. Its isolation is not the database's default, which may be stricter: a statement has
// to see what was committed while the one before it waited for a lock.
func (r *repository) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{Isolation: r.engine.isolation()})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit; an error of fn says more

	if err := fn(tx); err != nil {
		return err
	}

	return tx.Commit()
}
