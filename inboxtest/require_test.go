package inboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that may fail without failing the one around it.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs a test as a goroutine of its own and returns why it failed, or "".
func failureOf(t *testing.T, test func(t testing.TB)) string {
	t.Helper()

	r := &recorder{TB: t}
	done := make(chan struct{})

	go func() {
		defer close(done)

		test(r)
	}()

	<-done

	return r.failure
}

const insertCharge = `INSERT INTO charges (order_id) VALUES (?)`

func newEnv(t *testing.T, opts ...inbox.Option) *inboxtest.Env {
	t.Helper()

	env := inboxtest.New(t, opts...)
	env.Exec(t, `CREATE TABLE charges (order_id TEXT)`)

	return env
}

func order(id string) *message.Message {
	return message.NewMessage(watermill.NewUUID(), []byte(id))
}

// charge is a handler as it should be.
func charge(msg *message.Message) error {
	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errors.New("no transaction")
	}

	_, err := tx.ExecContext(msg.Context(), insertCharge, string(msg.Payload))

	return err
}

func chargeWithReceipt(msg *message.Message) ([]*message.Message, error) {
	if err := charge(msg); err != nil {
		return nil, err
	}

	return []*message.Message{order("receipt"), order("copy for the bookkeepers")}, nil
}

func TestGoodHandlersPass(t *testing.T) {
	t.Parallel()

	t.Run("one that writes", func(t *testing.T) {
		t.Parallel()

		env := newEnv(t)
		count := inboxtest.Count(t, `SELECT count(*) FROM charges`)

		inboxtest.RequireOnce(t, env, charge, order("1"), count)
		inboxtest.RequireOnce(t, env, message.NoPublishHandlerFunc(charge), order("2"), count)

		if n := count(env.DB); n != 2 {
			t.Errorf("%d charges, want 2", n)
		}
	})

	t.Run("one that returns messages", func(t *testing.T) {
		t.Parallel()

		env := newEnv(t)
		inboxtest.RequireOnce(t, env, chargeWithReceipt, order("1"), inboxtest.Count(t, `SELECT count(*) FROM charges`))
	})

	t.Run("one whose business key is unique", func(t *testing.T) {
		t.Parallel()

		env := newEnv(t)
		env.Exec(t, `CREATE UNIQUE INDEX once ON charges (order_id)`)
		inboxtest.RequireOnce(t, env, charge, order("1"), inboxtest.Count(t, `SELECT count(*) FROM charges`))
	})

	t.Run("one with a part that may fail", func(t *testing.T) {
		t.Parallel()

		env := newEnv(t)
		env.Exec(t, `CREATE TABLE points (order_id TEXT)`)

		h := func(msg *message.Message) error {
			_ = inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
				_, err := tx.ExecContext(msg.Context(), `INSERT INTO points (order_id) VALUES (?)`, string(msg.Payload))

				return err
			})

			return charge(msg)
		}
		inboxtest.RequireOnce(t, env, h, order("1"), inboxtest.Count(t, `SELECT count(*) FROM charges`))
	})

	t.Run("one whose outputs go to an outbox in the transaction", func(t *testing.T) {
		t.Parallel()

		env := newEnv(t, inbox.WithOutbox(func(tx *sql.Tx) (message.Publisher, error) { return outbox{tx}, nil }))
		env.Exec(t, `CREATE TABLE outbox (topic TEXT, uuid TEXT)`)
		inboxtest.RequireOnce(t, env, chargeWithReceipt, order("1"), inboxtest.Count(t, `SELECT count(*) / 2 FROM outbox`))
	})
}

// TestRequireOnceRunsTheHandlerForEachFault counts the runs: two that fail after the work, one for each statement and one
// that has no more of them, two whose commit fails, and the one that counts.
func TestRequireOnceRunsTheHandlerForEachFault(t *testing.T) {
	t.Parallel()

	for statements := range 4 {
		t.Run(fmt.Sprintf("%d statements besides the effect", statements), func(t *testing.T) {
			t.Parallel()

			var runs atomic.Int64

			h := func(msg *message.Message) error {
				runs.Add(1)

				tx, _ := inbox.TxFromContext(msg.Context())
				for range statements {
					if _, err := tx.ExecContext(msg.Context(), `DELETE FROM charges WHERE order_id = 'nobody'`); err != nil {
						return err
					}
				}

				return charge(msg)
			}

			inboxtest.RequireOnce(t, newEnv(t), h, order("1"), inboxtest.Count(t, `SELECT count(*) FROM charges`))

			if want := int64(7 + statements); runs.Load() != want {
				t.Errorf("%d runs, want %d", runs.Load(), want)
			}
		})
	}
}

type outbox struct{ tx *sql.Tx }

func (o outbox) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		_, err := o.tx.ExecContext(context.Background(), `INSERT INTO outbox (topic, uuid) VALUES (?, ?)`, topic, msg.UUID)
		if err != nil {
			return err
		}
	}

	return nil
}

func (outbox) Close() error { return nil }

// TestBadHandlersAreExplained has a handler for each common mistake.
func TestBadHandlersAreExplained(t *testing.T) {
	t.Parallel()

	for mistake, c := range map[string]struct {
		handler func(env *inboxtest.Env) message.HandlerFunc
		says    string
	}{
		"writes through the pool":                       {writesThroughPool, "database is locked by the transaction that the inbox gave it"},
		"writes through the pool and ignores the error": {ignoresPool, "nothing was sent through the transaction"},
		"writes to a database of its own": {func(*inboxtest.Env) message.HandlerFunc {
			return func(*message.Message) ([]*message.Message, error) { return nil, nil }
		}, "nothing was sent through the transaction"},
		"remembers in memory":               {remembers, "it remembers in memory"},
		"fails on what it remembers":        {failsOnMemory, "It may remember what it did in runs that were rolled back"},
		"adds up in memory":                 {addsUp, "keep nothing from runs that were rolled back"},
		"swallows an error":                 {swallows, "Return errors of statements"},
		"commits":                           {endsWith((*sql.Tx).Commit), "committed or rolled back the transaction itself"},
		"rolls back":                        {endsWith((*sql.Tx).Rollback), "committed or rolled back the transaction itself"},
		"always fails":                      {always(func() error { return errors.New("out of paper") }), "nothing had been made to fail yet: out of paper"},
		"panics":                            {always(func() error { panic("out of paper") }), "panicked in run 1, and nothing was made to fail in it: panic: out of paper"},
		"skips":                             {always(func() error { return inbox.ErrSkip }), "skipped the message"},
		"returns messages without UUID":     {returns("", "2"), "message 1 of 2 has no UUID"},
		"returns two messages of one UUID":  {returns("1", "1"), "message 2 of 2 has the UUID of another one"},
		"copies the event's id to messages": {copiesID, "metadata event_id of another one"},
		"returns nil for a message":         {returnsNil, "None of them could be handled: inbox: keeping the outputs"},
		"writes two rows":                   {twice, "the effect is +2 instead of +1"},
	} {
		t.Run(mistake, func(t *testing.T) {
			t.Parallel()

			env := newEnv(t)
			failure := failureOf(t, func(t testing.TB) {
				t.Helper()

				msg := order("1")
				msg.Metadata.Set("event_id", watermill.NewUUID())
				inboxtest.RequireOnce(t, env, c.handler(env), msg, inboxtest.Count(t, `SELECT count(*) FROM charges`))
			})

			if !strings.Contains(failure, c.says) {
				t.Errorf("failure does not say %q, but: %s", c.says, failure)
			}
		})
	}
}
