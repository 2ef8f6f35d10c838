package middlewares_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

var (
	errBusiness      = errors.New("out of stock")
	errNoTransaction = errors.New("the handler has no transaction")
)

// worker is a handler that counts its runs, writes its effect, and then does what the run says.
type worker struct {
	db   *testdb.DB
	then func(run int, msg *message.Message) error
	outs func() []*message.Message
	runs atomic.Int32
}

// work returns a handler; then may be nil.
func (s *station) work(then func(run int, msg *message.Message) error) *worker {
	return &worker{db: s.db, then: then}
}

// failing returns a handler whose first runs write their effect and then fail.
func (s *station) failing(runs int) *worker {
	return s.work(func(run int, _ *message.Message) error {
		if run <= runs {
			return errBusiness
		}

		return nil
	})
}

func (w *worker) handle(msg *message.Message) ([]*message.Message, error) {
	run := int(w.runs.Add(1))

	if err := effect(w.db, msg); err != nil {
		return nil, err
	}

	var outputs []*message.Message
	if w.outs != nil {
		outputs = w.outs()
	}

	if w.then == nil {
		return outputs, nil
	}

	return outputs, w.then(run, msg)
}

func (w *worker) requireRuns(t testing.TB, want int) {
	t.Helper()
	require.Equal(t, "runs of the handler", int(w.runs.Load()), want)
}
