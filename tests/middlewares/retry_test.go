package middlewares_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
)

func retry(times int) middleware.Retry {
	return middleware.Retry{MaxRetries: times, InitialInterval: time.Millisecond}
}

func sqlState(err error) string {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState()
	}

	return ""
}

func TestRetry(t *testing.T) {
	t.Parallel()

	// MassTransit 4299: no transaction is open during the pause.
	t.Run("outside gives each attempt a transaction of its own and holds none between them", func(t *testing.T) {
		t.Parallel()

		var (
			s            = newStation(t)
			ib           = s.db.New(t)
			l            log
			transactions []string
			openInPauses []int
		)

		w := s.work(func(run int, msg *message.Message) error {
			tx, _ := inbox.TxFromContext(msg.Context())

			var id string
			if err := tx.QueryRowContext(msg.Context(), "SELECT pg_current_xact_id()::text").Scan(&id); err != nil {
				return err
			}

			transactions = append(transactions, id)

			if run < 4 {
				return errBusiness
			}

			return nil
		})

		r := retry(3)
		r.OnRetryHook = func(int, time.Duration) { openInPauses = append(openInPauses, s.openTransactions()) }

		s.start(t, w, l.middleware, r.Middleware, ib.Middleware)
		s.publish(t, newOrder("e1"))

		slices.Sort(transactions)
		require.Equal(t, "transactions", len(slices.Compact(transactions)), 4)
		require.Equal(t, "open transactions in pauses", openInPauses, []int{0, 0})
		require.Equal(t, "deliveries", len(l.deliveries()), 1)
		s.db.RequireOnce(t, "e1")
	})

	t.Run("inside, on PostgreSQL, everything after the first SQL error is refused", func(t *testing.T) {
		t.Parallel()

		var (
			s        = newStation(t)
			ib       = s.db.New(t)
			outer    log
			inner    log
			attempts = 3
		)

		w := s.work(func(run int, msg *message.Message) error {
			if run == 1 {
				return exec(msg, "INSERT INTO "+s.db.Table("missing")+" VALUES (1)")
			}

			return nil
		})

		s.start(t, w, outer.middleware, ib.Middleware, retry(attempts-1).Middleware, inner.middleware)
		s.publish(t, newOrder("e1"))

		var states []string
		for _, err := range inner.deliveries() {
			states = append(states, sqlState(err))
		}

		require.Equal(t, "SQL states of the attempts", states, []string{"42P01", "25P02", "25P02", ""})
		require.Equal(t, "deliveries", len(outer.deliveries()), 2) // the second began afresh
		s.db.RequireOnce(t, "e1")
	})

	t.Run("inside, an attempt that works around the broken transaction is not committed by half", func(t *testing.T) {
		t.Parallel()

		var (
			s     = newStation(t)
			ib    = s.db.New(t)
			outer log
		)

		w := s.work(func(run int, msg *message.Message) error {
			if run > 1 {
				return nil
			}

			return exec(msg, "INSERT INTO "+s.db.Table("missing")+" VALUES (1)")
		})

		// The second attempt touches the database no more.
		attempts := 0
		skipSecond := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				if attempts++; attempts == 2 {
					return nil, nil
				}

				return h(msg)
			}
		}

		s.start(t, w, outer.middleware, ib.Middleware, retry(1).Middleware, skipSecond)
		s.publish(t, newOrder("e1"))

		errs := outer.deliveries()
		require.Equal(t, "deliveries", len(errs), 2)

		if errs[0] == nil {
			t.Error("the commit of a broken transaction was taken for success")
		}

		s.db.RequireOnce(t, "e1")
	})

	t.Run("danger: inside, what a failed attempt wrote is committed with the next", func(t *testing.T) {
		t.Parallel()

		s := newStation(t)
		ib := s.db.New(t)

		s.start(t, s.failing(1), ib.Middleware, retry(1).Middleware)
		s.publish(t, newOrder("e1"))

		require.Equal(t, "effects", s.db.Effects(t), map[string]int{"e1": 2})
		s.requireRecorded(t, 1)
	})
}

func TestDelayOnError(t *testing.T) {
	t.Parallel()

	t.Run("outside delays what failed, after the roll-back, and nothing else", func(t *testing.T) {
		t.Parallel()

		var (
			s     = newStation(t)
			ib    = s.db.New(t)
			l     log
			d     = middleware.DelayOnError{InitialInterval: time.Minute, MaxInterval: time.Hour, Multiplier: 2}
			w     = s.failing(1)
			after []int
		)

		watch := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				outputs, err := h(msg)
				after = append(after, s.openTransactions())

				return outputs, err
			}
		}

		s.start(t, w, l.middleware, d.Middleware, watch, ib.Middleware)
		s.publish(t, newOrder("e1"))
		s.publish(t, newOrder("e1")) // a duplicate

		var delays []string
		for _, msg := range l.messages {
			delays = append(delays, msg.Metadata.Get(delay.DelayedForKey))
		}

		require.Equal(t, "delays of the failure, the success and the duplicate", delays, []string{"1m0s", "", ""})
		require.Equal(t, "transactions that DelayOnError saw open", after, []int{0, 0, 0})
		s.db.RequireOnce(t, "e1")
	})
}
