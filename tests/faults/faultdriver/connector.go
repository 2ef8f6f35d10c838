// Package faultdriver wraps a database/sql driver and makes chosen calls of it fail, the way networks and servers
// do, while everything else goes to the real database.
package faultdriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// ErrInjected is wrapped by every error that did not come from the database, except for driver.ErrBadConn.
var ErrInjected = errors.New("injected fault")

// Kind is what happens at a boundary.
type Kind int

// The kinds of faults. The connection is really closed for a drop, so that a server rolls back what was open on it.
const (
	// ErrorBefore is an error instead of the call. A refused COMMIT rolls back, as a deferred constraint
	// makes it; a ROLLBACK that cannot be sent costs the connection.
	ErrorBefore Kind = iota + 1
	// ErrorAfter is an error although the database did what it was asked.
	ErrorAfter
	// DropBefore loses the connection before the call, which database/sql may therefore try on another one.
	DropBefore
	// DropAfter loses the connection when the database had done what it was asked, but before it answered.
	DropAfter
)

// Kinds are all kinds of faults.
var Kinds = []Kind{ErrorBefore, ErrorAfter, DropBefore, DropAfter}

func (k Kind) String() string {
	return [...]string{"none", "error before", "error after", "drop before", "drop after"}[k]
}

// Fault is one failure, at the At-th boundary counted from 1.
type Fault struct {
	At   int
	Kind Kind
}

func (f Fault) String() string { return fmt.Sprintf("%s %d", f.Kind, f.At) }

// Connector opens connections through another driver. It counts the boundaries on all of them: connect, prepare, begin,
// exec, query, commit and rollback, each a point where a connection or a server can fail. Calls on a connection that was
// dropped already fail by themselves and are not counted. It is safe for concurrent use, but counting means something
// only for work that is done in one order.
type Connector struct {
	inner driver.Connector

	mu     sync.Mutex
	faults []Fault
	passed []string
	fired  []string
	idle   []contextConn
}

// Wrap returns a connector to the database dsn of a driver registered with database/sql. It has no faults yet.
func Wrap(driverName, dsn string) (*Connector, error) {
	db, err := sql.Open(driverName, dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()

	var inner driver.Connector = plainConnector{db.Driver(), dsn}
	if d, ok := db.Driver().(driver.DriverContext); ok {
		if inner, err = d.OpenConnector(dsn); err != nil {
			return nil, err
		}
	}

	return &Connector{inner: inner}, nil
}

// Arm plans faults, for boundaries counted from here.
func (c *Connector) Arm(faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.faults, c.passed, c.fired = faults, nil, nil
}

// plainConnector is for drivers that have none of their own.
type plainConnector struct {
	driver driver.Driver
	dsn    string
}

func (c plainConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c plainConnector) Driver() driver.Driver                        { return c.driver }

// Driver returns the wrapped driver.
func (c *Connector) Driver() driver.Driver { return c.inner.Driver() }

// Passed lists the boundaries since Arm.
func (c *Connector) Passed() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Clone(c.passed)
}

// Fired lists the boundaries since Arm at which a fault has happened.
func (c *Connector) Fired() []string {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Clone(c.fired)
}

// next counts a boundary and returns its fault, or 0.
func (c *Connector) next(boundary string) Kind {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.passed = append(c.passed, boundary)

	for _, f := range c.faults {
		if f.At == len(c.passed) {
			c.fired = append(c.fired, boundary)

			return f.Kind
		}
	}

	return 0
}

// Connect is a boundary.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	kind := c.next("connect")
	if kind == ErrorBefore || kind == DropBefore {
		return nil, injected(kind, "connect")
	}

	inner, err := c.open(ctx)
	if err != nil {
		return nil, err
	}

	if kind != 0 {
		return nil, errors.Join(injected(kind, "connect"), inner.Close())
	}

	return &conn{inner: inner, connector: c, stmts: make(map[*stmt]bool)}, nil
}

func (c *Connector) open(ctx context.Context) (contextConn, error) {
	c.mu.Lock()

	if last := len(c.idle) - 1; last >= 0 {
		defer c.mu.Unlock()

		inner := c.idle[last]
		c.idle = c.idle[:last]

		return inner, nil
	}

	c.mu.Unlock()

	inner, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}

	whole, ok := inner.(contextConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("faultdriver: %T lacks methods that take a context", inner), inner.Close())
	}

	return whole, nil
}

func (c *Connector) keep(inner contextConn) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.idle = append(c.idle, inner)
}

// CloseIdle closes the connections that were kept.
func (c *Connector) CloseIdle() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	var errs []error
	for _, inner := range c.idle {
		errs = append(errs, inner.Close())
	}

	c.idle = nil

	return errors.Join(errs...)
}

func injected(kind Kind, boundary string) error {
	if kind == DropAfter {
		return fmt.Errorf("%w: %s %s: %w", ErrInjected, kind, boundary, io.ErrUnexpectedEOF)
	}

	return fmt.Errorf("%w: %s %s", ErrInjected, kind, boundary)
}
