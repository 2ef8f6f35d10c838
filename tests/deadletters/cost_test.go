package deadletters_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/faults/faultdriver"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// watched opens the database through a driver that lists what is sent.
func watched(t *testing.T, db *testdb.DB) (*testdb.DB, *faultdriver.Connector) {
	t.Helper()

	connector, err := faultdriver.Wrap(db.Engine.Driver, db.DSN)
	require.OK(t, err)

	through := *db
	through.DB = sql.OpenDB(connector)
	through.SetMaxOpenConns(1) // each statement is prepared once
	t.Cleanup(func() {
		through.Close()
		require.OK(t, connector.CloseIdle())
	})

	return &through, connector
}

func TestCost(t *testing.T) {
	t.Parallel()

	// sent returns what an event costs, fresh and as a duplicate, when everything is warm.
	sent := func(t *testing.T, db *testdb.DB, opts ...inbox.Option) (fresh, duplicate []string) {
		through, connector := watched(t, db)
		s := newStation(t, through, append(opts, outsideOfRouters())...)
		require.OK(t, s.deliverOnce("warm-1"))
		require.OK(t, s.deliverOnce("warm-1"))
		require.OK(t, s.deliverOnce("warm-2"))

		connector.Arm()
		require.OK(t, s.deliverOnce("order-1"))
		fresh = connector.Passed()

		connector.Arm()
		require.OK(t, s.deliverOnce("order-1"))

		return fresh, connector.Passed()
	}

	forEachEngine(t, "of events that do not fail is the same with a limit as without", func(t *testing.T, db *testdb.DB) {
		fresh, duplicate := sent(t, db)
		db.Exec(t, "DELETE FROM "+db.Table("inbox"))
		limitedFresh, limitedDuplicate := sent(t, db, inbox.WithMaxAttempts(n))

		require.Equal(t, "sent for a fresh event", limitedFresh, fresh)
		require.Equal(t, "sent for a duplicate", limitedDuplicate, duplicate)
	})

	forEachEngine(t, "of a crash guard is a transaction before the attempt, and one statement in it", func(
		t *testing.T, db *testdb.DB,
	) {
		fresh, _ := sent(t, db)
		db.Exec(t, "DELETE FROM "+db.Table("inbox"))
		guarded, _ := sent(t, db, inbox.WithMaxAttempts(n), inbox.WithCrashGuard())

		first, second, _ := cut(guarded)
		require.Equal(t, "sent beforehand", kinds(first), []string{"begin", "query", "commit"})

		// The removal of the count is the last statement before the commit.
		require.Equal(t, "sent for the attempt", len(second), len(fresh)+1)
	})
}

// cut divides what was sent after the first commit.
func cut(sent []string) (before, after []string, found bool) {
	i := slices.IndexFunc(sent, func(s string) bool { return strings.HasPrefix(s, "commit") })

	return sent[:i+1], sent[i+1:], i >= 0
}

// kinds returns the first words of what was sent.
func kinds(sent []string) []string {
	words := make([]string, len(sent))
	for i, s := range sent {
		words[i], _, _ = strings.Cut(s, " ")
	}

	return words
}
