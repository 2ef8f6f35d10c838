package conformance_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// spy sits between database/sql and the real driver and keeps what is really sent.
type spy struct {
	mu       sync.Mutex
	sent     []*statement
	prepared int
}

type statement struct {
	query string
	done  bool
	err   error
}

// spied opens the same database through a spy.
func spied(t testing.TB, db *testdb.DB) (*testdb.DB, *spy) {
	t.Helper()

	s := &spy{}
	watched := *db
	watched.DB = sql.OpenDB(&spyConnector{spy: s, driver: db.Driver(), dsn: db.DSN})
	t.Cleanup(func() { watched.Close() })

	return &watched, s
}

func (s *spy) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.sent = nil
}

func (s *spy) start(query string) (end func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()

	st := &statement{query: query}
	s.sent = append(s.sent, st)

	return func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()

		st.done, st.err = true, err
		if err == driver.ErrSkip { //nolint:errorlint // database/sql compares it like this, and sends the statement in another way
			s.sent = slices.DeleteFunc(s.sent, func(other *statement) bool { return other == st })
		}
	}
}

// queries returns what was sent and contains all the words, in order.
func (s *spy) queries(words ...string) []string {
	var found []string
	for _, st := range s.find(words...) {
		found = append(found, st.query)
	}

	return found
}

// take returns what was sent since the last time.
func (s *spy) take() []string {
	defer s.forget()

	return s.queries()
}

// running counts statements that were sent and not answered.
func (s *spy) running(words ...string) (n int) {
	for _, st := range s.find(words...) {
		if !st.done {
			n++
		}
	}

	return n
}

func (s *spy) find(words ...string) (found []statement) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, st := range s.sent {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(st.query, word) }) {
			found = append(found, *st)
		}
	}

	return found
}

func (s *spy) preparations() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.prepared
}

func (s *spy) requireNoErrors(t testing.TB) {
	t.Helper()

	for _, st := range s.find() {
		if st.err != nil {
			t.Errorf("%s: %v", st.query, st.err)
		}
	}
}

type spyConnector struct {
	*spy
	driver driver.Driver
	dsn    string
}

func (c *spyConnector) Driver() driver.Driver { return c.driver }

func (c *spyConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}

	return &spyConn{Conn: conn, spy: c.spy}, nil
}

// spyConn relies on what all three drivers implement.
type spyConn struct {
	driver.Conn
	spy *spy
}

func (c *spyConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}

	c.spy.mu.Lock()
	c.spy.prepared++
	c.spy.mu.Unlock()

	return &spyStmt{Stmt: stmt, query: query, spy: c.spy}, nil
}

func (c *spyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	end := c.spy.start("BEGIN")
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	end(err)

	if err != nil {
		return nil, err
	}

	return &spyTx{Tx: tx, spy: c.spy}, nil
}

func (c *spyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	end := c.spy.start(query)
	res, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	end(err)

	return res, err
}

func (c *spyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	end := c.spy.start(query)
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	end(err)

	return rows, err
}

func (c *spyConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}

	return driver.ErrSkip
}

func (c *spyConn) ResetSession(ctx context.Context) error {
	if resetter, ok := c.Conn.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}

	return nil
}

func (c *spyConn) IsValid() bool {
	validator, ok := c.Conn.(driver.Validator)

	return !ok || validator.IsValid()
}

type spyStmt struct {
	driver.Stmt
	query string
	spy   *spy
}

func (s *spyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	end := s.spy.start(s.query)
	res, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	end(err)

	return res, err
}

func (s *spyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	end := s.spy.start(s.query)
	rows, err := s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	end(err)

	return rows, err
}

type spyTx struct {
	driver.Tx
	spy *spy
}

func (tx *spyTx) Commit() error {
	end := tx.spy.start("COMMIT")
	err := tx.Tx.Commit()
	end(err)

	return err
}

func (tx *spyTx) Rollback() error {
	end := tx.spy.start("ROLLBACK")
	err := tx.Tx.Rollback()
	end(err)

	return err
}
