package deadletters_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMaxAttempts(t *testing.T) {
	t.Parallel()

	both(t, "nacks until the last failure, then keeps the message and acks", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), n)
		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.requireDead(t, "order-1")
		s.RequireOnce(t)
		s.requireRows(t, failures, 0)
	})

	both(t, "acks a redelivery of a dead event without running it", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.start(t)

		s.deliver(t, newOrder("order-1"))
		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), n+1)
		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.requireDead(t, "order-1")
		s.requireRows(t, failures, 0)
	})

	both(t, "tells the hooks of each failure, and of the death once", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "Failed", s.told.failed.of("order-1"), n)
		require.Equal(t, "Dead", s.told.dead.of("order-1"), 1)
		require.Equal(t, "Processed", s.told.processed.of("order-1"), 0)
		require.ErrorIs(t, s.told.causeOfDeath(), errRefused)
	})

	both(t, "lets other events pass", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = func(_ int, msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "order-2" {
				return nil, errRefused
			}

			return nil, nil
		}
		s.start(t)

		for _, id := range []string{"order-1", "order-2", "order-3"} {
			s.deliver(t, newOrder(id))
		}

		s.RequireOnce(t, "order-1", "order-3")
		s.requireDead(t, "order-2")
	})

	both(t, "counts panics, and keeps their value", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = func(int, *message.Message) ([]*message.Message, error) { panic("no such customer: 42") }
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		letter := s.requireDead(t, "order-1")[0]
		require.Equal(t, "attempts", letter.Attempts, n)
		require.ErrorNames(t, errors.New(letter.LastError), "panic", "no such customer: 42")
		require.Equal(t, "deliveries", s.deliveries.of("order-1"), n)
		s.RequireOnce(t)
	})

	both(t, "drops the outputs of a failure", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = func(_ int, msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{msg}, errRefused
		}

		for range n - 1 {
			require.ErrorIs(t, s.deliverOnce("order-1"), errRefused)
		}

		outputs, err := s.inbox.Middleware(s.run)(newOrder("order-1"))
		require.OK(t, err)
		require.Equal(t, "outputs", len(outputs), 0)
	}, outsideOfRouters())

	postgres(t, "counts a commit that fails because the handler swallowed a SQL error", func(t *testing.T, db *testdb.DB) {
		s := newStation(t, db, inbox.WithMaxAttempts(n))
		s.handle = func(_ int, msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())
			_, _ = tx.ExecContext(msg.Context(), "SELECT 1/0")

			return nil, nil
		}
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		letter := s.requireDead(t, "order-1")[0]
		require.ErrorNames(t, errors.New(letter.LastError), "inbox: ", "order-1")
		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.RequireOnce(t)
	})

	both(t, "counts a handler that ends the transaction itself", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = func(_ int, msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())

			return nil, tx.Rollback()
		}
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "runs", s.runs.of("order-1"), n)
		s.requireDead(t, "order-1")
	})

	both(t, "of 1 keeps a message at its first failure", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, append(opts, inbox.WithMaxAttempts(1))...)
		s.handle = failing(always)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		require.Equal(t, "deliveries", s.deliveries.of("order-1"), 1)
		s.requireDead(t, "order-1")
	})

	both(t, "keeps an error that is long and unprintable in a bounded, printable form", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = func(int, *message.Message) ([]*message.Message, error) {
			return nil, errors.New("\x00\xff" + strings.Repeat("very ", 10_000))
		}
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		letter := s.requireDead(t, "order-1")[0]
		require.Equal(t, "bounded", len(letter.LastError) <= 2000, true)
		require.ErrorNames(t, errors.New(letter.LastError), `\x00\xff`, "very very")
	})

	both(t, "keeps the message with the broker while it cannot be stored", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, opts...)
		s.handle = failing(always)
		accept := refuseInserts(t, db, payloads)

		for range n - 1 {
			require.ErrorIs(t, s.deliverOnce("order-1"), errRefused)
		}

		for range 2 {
			require.ErrorNames(t, s.deliverOnce("order-1"), "dead letter", "no space left")
		}

		s.requireDead(t)
		accept()
		require.OK(t, s.deliverOnce("order-1"))
		s.requireDead(t, "order-1")
	}, outsideOfRouters())
}

// postgres runs a behaviour that only PostgreSQL has.
func postgres(t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB)) {
	t.Helper()
	testdb.ForEach(t, []testdb.Engine{testdb.PQ, testdb.PGX}, sentence, fn)
}

func TestConcurrentFailuresOfOneEvent(t *testing.T) {
	t.Parallel()

	for _, attempts := range []int{1, n} {
		forEachEngine(t, map[int]string{1: "are one death, with one attempt", n: "are one death"}[attempts], func(
			t *testing.T, db *testdb.DB,
		) {
			const deliveries = 5

			s := newStation(t, db, inbox.WithMaxAttempts(attempts), outsideOfRouters())
			s.handle = failing(always)

			errs := make(chan error, deliveries)
			for range deliveries {
				go func() {
					err := s.deliverOnce("order-1")
					for err != nil { // the broker delivers it again
						err = s.deliverOnce("order-1")
					}

					errs <- err
				}()
			}

			for range deliveries {
				require.OK(t, require.Await(t, "an ack", errs))
			}

			letter := s.requireDead(t, "order-1")[0]
			require.Equal(t, "attempts are enough", letter.Attempts >= attempts, true)
			require.Equal(t, "Dead", s.told.dead.of("order-1"), 1)
			s.RequireOnce(t)
			s.requireRows(t, failures, 0)
		})
	}

	// A second delivery has waited for the first one, and succeeds where that failed for the last time.
	forEachEngine(t, "do not bury what succeeds meanwhile", func(t *testing.T, db *testdb.DB) {
		s := newStation(t, db, inbox.WithMaxAttempts(1), outsideOfRouters())
		proceed := make(chan struct{})
		s.handle = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run == 1 {
				<-proceed

				return nil, errRefused
			}

			return nil, nil
		}

		errs := make(chan error, 2)
		go func() { errs <- s.deliverOnce("order-1") }()

		require.Eventually(t, "the first one runs", func() bool { return s.runs.of("order-1") == 1 })

		go func() { errs <- s.deliverOnce("order-1") }()

		require.Eventually(t, "the second one waits", func() bool { return s.DB.Stats().InUse == 2 })
		close(proceed)

		failed := errors.Join(require.Await(t, "an answer", errs), require.Await(t, "an answer", errs))

		// Who came first after the failure, the second delivery or the burial, is open.
		if dead, err := s.inbox.Dead(context.Background(), 1); err != nil || len(dead) == 1 {
			require.OK(t, errors.Join(err, failed))
			s.RequireOnce(t)
		} else {
			require.ErrorIs(t, failed, errRefused)
			s.RequireOnce(t, "order-1")
			require.OK(t, s.deliverOnce("order-1"))
		}
	})
}
