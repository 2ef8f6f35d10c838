package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// contextConn is what a driver must have for its connections to be wrapped. Of what else database/sql looks for,
// the wrapper has the default where the driver has nothing.
type contextConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

var _ interface {
	contextConn
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
	driver.Pinger
} = (*conn)(nil)

type conn struct {
	inner     contextConn
	connector *Connector
	stmts     map[*stmt]bool
	dropped   bool
}

// call is one request to the database.
type call struct {
	do func() error
	// undo takes back what would be left on a connection whose caller was told of an error.
	undo func() error
	// refuse stands in for do when the database is never asked.
	refuse func() error
}

func (c *conn) pass(boundary string, call call) error {
	if c.dropped {
		return driver.ErrBadConn
	}

	kind := c.connector.next(boundary)

	switch kind {
	case ErrorBefore:
		return errors.Join(injected(kind, boundary), run(call.refuse))
	case DropBefore:
		c.drop()

		return driver.ErrBadConn
	}

	if err := call.do(); err != nil || kind == 0 {
		return err
	}

	err := errors.Join(injected(kind, boundary), run(call.undo))
	if kind == DropAfter {
		c.drop()
	}

	return err
}

func run(f func() error) error {
	if f == nil {
		return nil
	}

	return f()
}

// drop closes the connection. SQLite keeps one alive, with its transaction, as long as a statement of it is.
func (c *conn) drop() {
	for s := range c.stmts {
		_ = s.inner.Close()
	}

	_ = c.inner.Close()
	c.dropped = true
}

func (c *conn) Close() error {
	switch {
	case c.dropped:
		return nil
	case c.IsValid():
		c.connector.keep(c.inner)

		return nil
	default:
		return c.inner.Close()
	}
}

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s := &stmt{conn: c, query: query}

	err := c.pass("prepare "+query, call{do: func() error {
		inner, err := c.inner.PrepareContext(ctx, query)
		if err != nil {
			return err
		}

		var ok bool
		if s.inner, ok = inner.(contextStmt); !ok {
			return errors.Join(fmt.Errorf("faultdriver: %T lacks methods that take a context", inner), inner.Close())
		}

		c.stmts[s] = true

		return nil
	}, undo: s.Close})
	if err != nil {
		return nil, err
	}

	return s, nil
}

func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t := &tx{conn: c}

	err := c.pass("begin", call{do: func() (err error) {
		t.inner, err = c.inner.BeginTx(ctx, opts)

		return err
	}, undo: func() error { return t.inner.Rollback() }})
	if err != nil {
		return nil, err
	}

	return t, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(query, func() (driver.Result, error) { return c.inner.ExecContext(ctx, query, args) })
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(query, func() (driver.Rows, error) { return c.inner.QueryContext(ctx, query, args) })
}

func (c *conn) exec(query string, exec func() (driver.Result, error)) (res driver.Result, err error) {
	err = c.pass("exec "+query, call{do: func() (err error) {
		res, err = exec()

		return err
	}})
	if err != nil {
		return nil, err
	}

	return res, nil
}

func (c *conn) query(query string, run func() (driver.Rows, error)) (rows driver.Rows, err error) {
	err = c.pass("query "+query, call{do: func() (err error) {
		rows, err = run()

		return err
	}, undo: func() error { return rows.Close() }})
	if err != nil {
		return nil, err
	}

	return rows, nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if c.dropped {
		return driver.ErrBadConn
	}

	if r, ok := c.inner.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}

	return nil
}

func (c *conn) IsValid() bool {
	if c.dropped {
		return false
	}

	v, ok := c.inner.(driver.Validator)

	return !ok || v.IsValid()
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}

	return driver.ErrSkip
}

func (c *conn) Ping(ctx context.Context) error {
	if c.dropped {
		return driver.ErrBadConn
	}

	if p, ok := c.inner.(driver.Pinger); ok {
		return p.Ping(ctx)
	}

	return nil
}
