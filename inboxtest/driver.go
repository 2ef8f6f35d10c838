package inboxtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// connector takes its connections out of another pool, so that it needs to know neither driver nor address.
type connector struct {
	pool   *sql.DB
	faults *faults
}

func (c connector) Driver() driver.Driver { return c.pool.Driver() }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	taken, err := c.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}

	wrapped := &conn{taken: taken, faults: c.faults}

	err = taken.Raw(func(driverConn any) (err error) {
		var ok bool
		if wrapped.inner, ok = driverConn.(innerConn); !ok {
			err = fmt.Errorf("inboxtest: %T lacks methods that take a context", driverConn)
		}

		return err
	})
	if err != nil {
		return nil, errors.Join(err, taken.Close())
	}

	return wrapped, nil
}

// innerConn is what drivers of today have.
type innerConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// conn is a connection that fails as told. Nobody else uses the inner one until taken is given back.
type conn struct {
	taken  *sql.Conn
	inner  innerConn
	faults *faults
}

func (c *conn) Close() error { return c.taken.Close() }

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.faults.onStatement(c, query); err != nil {
		return nil, err
	}

	return c.inner.PrepareContext(ctx, query)
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == startOfHandler {
		c.faults.enter(c)

		return driver.RowsAffected(0), nil
	}

	if err := c.faults.onStatement(c, query); err != nil {
		return nil, err
	}

	return c.inner.ExecContext(ctx, query, args)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.faults.onStatement(c, query); err != nil {
		return nil, err
	}

	return c.inner.QueryContext(ctx, query, args)
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}

	return driver.ErrSkip
}

func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	inner, err := c.inner.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}

	return tx{inner, c}, nil
}

type tx struct {
	inner driver.Tx
	conn  *conn
}

// Commit rolls back where it is refused, as servers do.
func (t tx) Commit() error {
	switch err := t.conn.faults.onEnd(t.conn, true); {
	case err == nil:
		return t.inner.Commit()
	case errors.Is(err, errAnswerLost):
		return errors.Join(t.inner.Commit(), err)
	default:
		return errors.Join(err, t.inner.Rollback())
	}
}

func (t tx) Rollback() error {
	_ = t.conn.faults.onEnd(t.conn, false) // is told, and refuses nothing

	return t.inner.Rollback()
}
