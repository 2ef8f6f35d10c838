package stored_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// row is what the table of stored messages has of one event.
type row struct {
	attempts  int
	owner     string // "" for none
	lease     int64  // its number
	due       time.Time
	dead      bool
	lastError string
}

// find reports false for an event whose message is not stored.
func find(t testing.TB, db *testdb.DB, id string) (r row, ok bool) {
	t.Helper()

	owner, due := "COALESCE(p.owner::text, '')", "COALESCE((extract(epoch FROM p.due_at) * 1000)::bigint, 0)"
	if db.Engine.Dialect == inbox.SQLite {
		owner, due = "hex(p.owner)", "COALESCE(p.due_at, 0)"
	}

	var milliseconds int64

	err := db.QueryRowContext(context.Background(), "SELECT p.attempts, COALESCE(p.lease, 0), "+owner+", "+due+`,
		p.dead_at IS NOT NULL, COALESCE(p.last_error, '') FROM `+db.Table("inbox_payloads")+" AS p WHERE p.key = "+keyOf(db), id).
		Scan(&r.attempts, &r.lease, &r.owner, &milliseconds, &r.dead, &r.lastError)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, false
	}

	require.OK(t, err)

	if milliseconds != 0 {
		r.due = time.UnixMilli(milliseconds)
	}

	return r, true
}

// keyOf is the key of the event whose id is the first argument.
func keyOf(db *testdb.DB) string {
	return "(SELECT key FROM " + db.Table("inbox") + " WHERE event_id = $1)"
}

func stored(t testing.TB, db *testdb.DB, id string) row {
	t.Helper()

	r, ok := find(t, db, id)
	if !ok {
		t.Fatalf("no message of event %q is stored", id)
	}

	return r
}

// awaitRow returns the row as soon as the condition holds.
func awaitRow(t testing.TB, db *testdb.DB, id, what string, condition func(r row) bool) (r row) {
	t.Helper()
	require.Eventually(t, what, func() bool {
		found, ok := find(t, db, id)
		r = found

		return ok && condition(r)
	})

	return r
}

// awaitRelease returns the row once nobody has it leased.
func awaitRelease(t testing.TB, db *testdb.DB, id string) row {
	t.Helper()

	return awaitRow(t, db, id, id+" is given back", func(r row) bool { return r.owner == "" })
}

func isFinished(t testing.TB, db *testdb.DB, id string) bool {
	t.Helper()

	_, ok := find(t, db, id)

	return !ok && isProcessed(t, db, id)
}

func isProcessed(t testing.TB, db *testdb.DB, id string) bool {
	t.Helper()

	return db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")+" WHERE event_id = $1 AND processed_at IS NOT NULL", id) == 1
}

// awaitFinished returns when the events are processed and their messages gone.
func awaitFinished(t testing.TB, db *testdb.DB, ids ...string) {
	t.Helper()

	for _, id := range ids {
		require.Eventually(t, id+" is finished", func() bool { return isFinished(t, db, id) })
	}
}

func requireRecorded(t testing.TB, db *testdb.DB, want int) {
	t.Helper()
	require.Equal(t, "recorded events", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")), want)
}

// at is a time in due_at.
func at(db *testdb.DB, fromNow time.Duration) string {
	if db.Engine.Dialect == inbox.SQLite {
		return fmt.Sprintf("(CAST(strftime('%%s', 'now') AS INTEGER) * 1000 + %d)", fromNow.Milliseconds())
	}

	return fmt.Sprintf("(now() + %d * interval '1 ms')", fromNow.Milliseconds())
}

// setDue moves the next attempt, or the end of the lease.
func setDue(t testing.TB, db *testdb.DB, id string, fromNow time.Duration) {
	t.Helper()
	db.Exec(t, "UPDATE "+db.Table("inbox_payloads")+" SET due_at = "+at(db, fromNow)+" WHERE key = "+keyOf(db), id)
}

// steal leases a message as another process does whose lease ends at a time, and leaves it there.
func steal(t testing.TB, db *testdb.DB, id string, end time.Duration) {
	t.Helper()

	thief := "'00000000-0000-0000-0000-00000000dead'"
	if db.Engine.Dialect == inbox.SQLite {
		thief = "x'0000000000000000000000000000dead'"
	}

	db.Exec(t, "UPDATE "+db.Table("inbox_payloads")+" SET owner = "+thief+", lease = 1, attempts = attempts + 1, due_at = "+
		at(db, end)+" WHERE key = "+keyOf(db), id)
}

// unfinished counts the messages that are stored, dead ones included.
func unfinished(t testing.TB, db *testdb.DB) int {
	t.Helper()

	return db.Int(t, "SELECT count(*) FROM "+db.Table("inbox_payloads"))
}
