package deadletters_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestCountOfFailures(t *testing.T) {
	t.Parallel()

	both(t, "goes with success", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(n - 1)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		s.RequireOnce(t, "order-1")
		s.requireRows(t, failures, 0)
		s.requireDead(t)
	})

	// Rows that failed once were never cleaned (Wolverine 1876, eventuate-tram-core 46).
	forEachEngine(t, "that another process has made is swept by the next failure of any event", func(
		t *testing.T, db *testdb.DB,
	) {
		first := newStation(t, db, inbox.WithMaxAttempts(n), outsideOfRouters())
		first.handle = failing(always)
		second := newStation(t, db, inbox.WithMaxAttempts(n), outsideOfRouters())

		require.ErrorIs(t, first.deliverOnce("order-1"), errRefused)
		require.OK(t, second.deliverOnce("order-1"))
		require.ErrorIs(t, first.deliverOnce("order-2"), errRefused)

		s := second
		s.RequireOnce(t, "order-1")
		s.requireRows(t, failures, 1) // of order-2
		require.OK(t, s.deliverOnce("order-2"))
	})

	both(t, "goes with Forget", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(n)

		for range n {
			_ = s.deliverOnce("order-1")
		}

		forgotten, err := s.inbox.Forget(t.Context(), s.requireDead(t, "order-1")[0].Event)
		require.OK(t, err)
		require.Equal(t, "forgotten", forgotten, true)
		s.requireDead(t)
		require.OK(t, s.deliverOnce("order-1"))
		s.RequireOnce(t, "order-1")
	}, outsideOfRouters())

	both(t, "is each event's own", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = failing(n - 1)

		for range n {
			for i := range 4 {
				_ = s.deliverOnce(fmt.Sprint("order-", i))
			}
		}

		s.requireDead(t)
		s.RequireOnce(t, "order-0", "order-1", "order-2", "order-3")
	}, outsideOfRouters())
}

func TestNotCounted(t *testing.T) {
	t.Parallel()

	both(t, "is what a shutdown interrupts", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		for range n + 1 {
			s := newStation(t, db, opts...)
			s.handle = func(_ int, msg *message.Message) ([]*message.Message, error) {
				<-msg.Context().Done()

				return nil, msg.Context().Err()
			}
			s.start(t)

			published := make(chan error, 1)
			go func() { published <- s.pubSub.Publish(orders, newOrder("order-1")) }()

			require.Eventually(t, "the handler runs", func() bool { return s.runs.of("order-1") > 0 })
			require.OK(t, s.router.Close())
			require.OK(t, require.Await(t, "the end of Publish", published))
		}

		s := newStation(t, db, opts...).start(t)
		s.deliver(t, newOrder("order-1"))
		s.requireDead(t)
		s.RequireOnce(t, "order-1")
	})

	both(t, "is ErrSkip", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		s.handle = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run <= n+1 {
				return nil, fmt.Errorf("not for us: %w", inbox.ErrSkip)
			}

			return nil, nil
		}
		s.start(t)

		for range n + 1 {
			s.deliver(t, newOrder("order-1"))
		}

		s.requireRows(t, failures, 0)
		s.deliver(t, newOrder("order-1"))
		s.requireDead(t)
		s.RequireOnce(t, "order-1")
	})

	both(t, "is a transaction that got into the way of others once too often", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, append(opts, inbox.WithMaxTxRetries(1))...)
		s.handle = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run <= 2*(n+1) {
				return nil, fmt.Errorf("reading the stock: %w", inTheWay{})
			}

			return nil, nil
		}

		for range n + 1 {
			require.ErrorIs(t, s.deliverOnce("order-1"), inTheWay{})
		}

		require.Equal(t, "runs", s.runs.of("order-1"), 2*(n+1))
		s.requireRows(t, failures, 0)
		require.OK(t, s.deliverOnce("order-1"))
		s.requireDead(t)
		s.RequireOnce(t, "order-1")
	}, outsideOfRouters())

	both(t, "is a claim that the database refuses", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)
		accept := refuseInserts(t, db, "inbox")

		for range n + 1 {
			require.ErrorNames(t, s.deliverOnce("order-1"), "claiming", "no space left")
		}

		s.requireRows(t, failures, 0)
		accept()
		require.OK(t, s.deliverOnce("order-1"))
		s.requireDead(t)
		s.RequireOnce(t, "order-1")
	}, outsideOfRouters())

	both(t, "is a message without an identity", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)

		for range n + 1 {
			require.ErrorIs(t, s.deliverOnce(""), inbox.ErrNoEventID)
		}

		s.requireDead(t)
		s.requireRows(t, failures, 0)
	}, outsideOfRouters())

	both(t, "is a duplicate", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		s := newStation(t, db, opts...)

		for range n + 2 {
			require.OK(t, s.deliverOnce("order-1"))
		}

		s.requireDead(t)
		s.requireRows(t, failures, 0)
		s.RequireOnce(t, "order-1")
	}, outsideOfRouters())
}

// inTheWay is what handlers get from every driver when their transaction has to be run again.
type inTheWay struct{}

func (inTheWay) Error() string    { return "in the way of another transaction" }
func (inTheWay) SQLState() string { return "40001" }
func (inTheWay) Code() int        { return 5 }

// refuseInserts has the database refuse new rows of a table until accept is called.
func refuseInserts(t *testing.T, db *testdb.DB, table string) (accept func()) {
	t.Helper()

	statements := []string{
		"CREATE TRIGGER refuse BEFORE INSERT ON " + table + " BEGIN SELECT RAISE(ABORT, 'no space left'); END",
	}
	drop := "DROP TRIGGER refuse"

	if db.Engine != testdb.SQLite {
		refuse := db.Table("refuse")
		statements = []string{
			"CREATE FUNCTION " + refuse + `() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$`,
			"CREATE TRIGGER refuse BEFORE INSERT ON " + db.Table(table) + " FOR EACH ROW EXECUTE FUNCTION " + refuse + "()",
		}
		drop += " ON " + db.Table(table)
	}

	for _, statement := range statements {
		db.Exec(t, statement)
	}

	return func() { db.Exec(t, drop) }
}
