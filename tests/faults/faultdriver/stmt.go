package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
)

// contextStmt is what a driver must have for its statements to be wrapped.
type contextStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

var _ interface {
	contextStmt
	driver.NamedValueChecker
} = (*stmt)(nil)

type stmt struct {
	inner contextStmt
	conn  *conn
	query string
}

func (s *stmt) Close() error {
	if s.conn.dropped {
		return nil
	}

	delete(s.conn.stmts, s)

	return s.inner.Close()
}

func (s *stmt) NumInput() int { return s.inner.NumInput() }

// database/sql prefers the methods with a context.
var errNoContext = errors.New("faultdriver: called without a context")

func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (s *stmt) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.exec(s.query, func() (driver.Result, error) { return s.inner.ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.query(s.query, func() (driver.Rows, error) { return s.inner.QueryContext(ctx, args) })
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := s.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}

	return s.conn.CheckNamedValue(v)
}

type tx struct {
	inner driver.Tx
	conn  *conn
}

func (t *tx) Commit() error {
	return t.conn.pass("commit", call{do: t.inner.Commit, refuse: t.inner.Rollback})
}

func (t *tx) Rollback() error {
	return t.conn.pass("rollback", call{do: t.inner.Rollback, refuse: func() error {
		t.conn.drop()

		return nil
	}})
}
