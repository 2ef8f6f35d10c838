package inbox

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
)

// statements are prepared once for the connection pool; database/sql prepares them on each connection when it first
// runs them there.
type statements struct {
	unprepared bool
	prepared   atomic.Pointer[map[string]*sql.Stmt]
}

// prepare does nothing after it succeeded once. Until then every call tries, since tables may be created later.
func (s *statements) prepare(ctx context.Context, db *sql.DB, queries ...string) error {
	if s.unprepared || s.prepared.Load() != nil {
		return nil
	}

	prepared := make(map[string]*sql.Stmt, len(queries))

	for _, query := range queries {
		stmt, err := db.PrepareContext(ctx, query) //nolint:sqlclosecheck // lives as long as the pool
		if err != nil {
			return errors.Join(err, closeAll(prepared))
		}

		prepared[query] = stmt
	}

	if !s.prepared.CompareAndSwap(nil, &prepared) {
		return closeAll(prepared) // another goroutine was first
	}

	return nil
}

func closeAll(stmts map[string]*sql.Stmt) error {
	var errs []error
	for _, stmt := range stmts {
		errs = append(errs, stmt.Close())
	}

	return errors.Join(errs...)
}

// of returns the prepared statement, or nil for a query that was not prepared.
func (s *statements) of(query string) *sql.Stmt {
	if prepared := s.prepared.Load(); prepared != nil {
		return (*prepared)[query]
	}

	return nil
}

func (s *statements) exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (sql.Result, error) {
	if stmt := s.of(query); stmt != nil {
		return tx.StmtContext(ctx, stmt).ExecContext(ctx, args...) //nolint:sqlclosecheck // closed with the transaction
	}

	return tx.ExecContext(ctx, query, args...)
}

func (s *statements) query(ctx context.Context, tx *sql.Tx, query string, args ...any) (*sql.Rows, error) {
	if stmt := s.of(query); stmt != nil {
		return tx.StmtContext(ctx, stmt).QueryContext(ctx, args...) //nolint:sqlclosecheck // closed with the transaction
	}

	return tx.QueryContext(ctx, query, args...)
}

// queryRow reads in tx, or outside of any transaction when tx is nil.
func (s *statements) queryRow(ctx context.Context, db *sql.DB, tx *sql.Tx, query string, args ...any) *sql.Row {
	stmt := s.of(query) //nolint:sqlclosecheck // lives as long as the pool

	switch {
	case stmt != nil && tx != nil:
		return tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...) //nolint:sqlclosecheck // closed with the transaction
	case stmt != nil:
		return stmt.QueryRowContext(ctx, args...)
	case tx != nil:
		return tx.QueryRowContext(ctx, query, args...)
	default:
		return db.QueryRowContext(ctx, query, args...)
	}
}
