package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

type codedError struct{ code int }

func (e *codedError) Error() string { return fmt.Sprintf("code %d", e.code) }

// recovered returns the value that fn panics with.
func recovered(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()

	return nil
}

func TestFailure(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "handler error then redelivery runs again", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), failing(db, errors.New("failed"))

		outputs, err := deliver(ib, w.handle, delivery("e1"))
		require.ErrorNames(t, err, "failed")
		require.Equal(t, "outputs", len(outputs), 0)
		db.RequireOnce(t)
		requireRecorded(t, db, 0)

		for range 2 {
			_, err = deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
		}

		w.requireRuns(t, 2)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "handler error is returned unchanged", func(t *testing.T, db *testdb.DB) {
		want := error(&codedError{42})

		_, err := deliver(newInbox(t, db), failing(db, want).handle, delivery("e1"))
		if err != want { //nolint:errorlint // identity is the point
			t.Fatalf("got %v, want the handler's own error value", err)
		}

		var coded *codedError
		if !errors.As(err, &coded) || coded.code != 42 {
			t.Fatalf("errors.As lost the type of %v", err)
		}
	})

	forEachEngine(t, "outputs that come with an error are dropped", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)
		h := func(*message.Message) ([]*message.Message, error) {
			return message.Messages{delivery("o1")}, errors.New("failed")
		}

		outputs, err := deliver(ib, h, delivery("e1"))
		require.ErrorNames(t, err, "failed")
		require.Equal(t, "outputs", len(outputs), 0)
		requireStoredOutputs(t, db, 0)
	})

	// watermill 579
	forEachEngine(t, "panic rolls back and propagates with its value and redelivery runs", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		value := &codedError{42}
		w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run == 1 {
				panic(value)
			}

			return nil, nil
		}

		got := recovered(func() { _, _ = deliver(ib, w.handle, delivery("e1")) })
		if got != any(value) {
			t.Fatalf("recovered %v, want the handler's own value", got)
		}

		requireIdle(t, db)
		db.RequireOnce(t)
		requireRecorded(t, db, 0)

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "runtime.Goexit in the handler rolls back and redelivery runs", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run == 1 {
				runtime.Goexit()
			}

			return nil, nil
		}

		ended := make(chan struct{})

		go func() {
			defer close(ended)

			_, _ = deliver(ib, w.handle, delivery("e1"))
		}()

		require.Await(t, "the goroutine to exit", ended)
		requireIdle(t, db)
		requireRecorded(t, db, 0)

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		db.RequireOnce(t, "e1")
	})

	// watermill 696, 467
	forEachEngine(t, "the message keeps its own context after success, failure and panic", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db, inbox.WithTxTimeout(require.Patience))
		ctx, cancel := context.WithCancel(context.Background())

		defer cancel()

		for id, h := range map[string]message.HandlerFunc{
			"success": newWorker(db).handle,
			"failure": failing(db, errors.New("failed")).handle,
			"panic":   func(*message.Message) ([]*message.Message, error) { panic("oops") },
		} {
			msg := delivery(id)
			msg.SetContext(ctx)
			recovered(func() { _, _ = deliver(ib, h, msg) })

			if msg.Context() != ctx {
				t.Errorf("%s: the message has another context", id)
			}

			require.OK(t, msg.Context().Err())
		}
	})

	forEachEngine(t, "a context that was cancelled before does not stop the transaction", func(t *testing.T, db *testdb.DB) {
		msg := delivery("e1")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		msg.SetContext(ctx)

		w := newWorker(db)
		w.then = func(_ int, msg *message.Message) ([]*message.Message, error) {
			require.ErrorIs(t, msg.Context().Err(), context.Canceled) // the handler may look and stop

			return message.Messages{delivery("o1")}, nil
		}

		outputs, err := deliver(newInbox(t, db), w.handle, msg)
		require.OK(t, err)
		require.Equal(t, "outputs", uuids(outputs), []string{"o1"})
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "a context that is cancelled meanwhile does not end the transaction", func(t *testing.T, db *testdb.DB) {
		msg := delivery("e1")
		ctx, cancel := context.WithCancel(context.Background())

		defer cancel()
		msg.SetContext(ctx)

		h := func(msg *message.Message) ([]*message.Message, error) {
			if err := effect(db, msg.Context()); err != nil {
				return nil, err
			}

			cancel()
			<-msg.Context().Done()

			return nil, effectNamed(db, msg.Context(), "after")
		}

		_, err := deliver(newInbox(t, db), h, msg)
		require.OK(t, err)
		db.RequireOnce(t, "e1", "after")
	})

	// NServiceBus 5648
	forEachPostgres(t, "connection dropped during the handler has no effect twice", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
			if run > 1 {
				return nil, nil
			}

			tx, _ := inbox.TxFromContext(msg.Context())

			var pid int
			if err := tx.QueryRowContext(msg.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return nil, err
			}

			_, err := db.ExecContext(msg.Context(), "SELECT pg_terminate_backend($1)", pid)
			require.Eventually(t, "the server process is gone", func() bool {
				return db.Int(t, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
			})

			return nil, err
		}

		_, err := deliver(ib, w.handle, delivery("e1"))
		if err == nil {
			t.Fatal("a message whose transaction was lost was acked")
		}

		db.RequireOnce(t)

		_, err = deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		db.RequireOnce(t, "e1")
	})
}

func TestSkip(t *testing.T) {
	t.Parallel()

	for name, skip := range map[string]error{
		"ErrSkip":         inbox.ErrSkip,
		"wrapped ErrSkip": fmt.Errorf("not for us: %w", inbox.ErrSkip),
		"joined ErrSkip":  errors.Join(errors.New("not for us"), inbox.ErrSkip),
	} {
		forEachEngine(t, name+" acks, records nothing and the next delivery runs", func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db), newWorker(db)
			w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
				if run == 1 {
					return message.Messages{delivery("dropped")}, skip
				}

				return message.Messages{delivery("kept")}, nil
			}

			outputs, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			require.Equal(t, "outputs", len(outputs), 0)
			requireRecorded(t, db, 0)
			requireStoredOutputs(t, db, 0)
			db.RequireOnce(t)

			outputs, err = deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			require.Equal(t, "outputs", uuids(outputs), []string{"kept"})
			db.RequireOnce(t, "e1")
		})
	}
}
