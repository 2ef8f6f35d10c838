// Package stored_test shows, on every engine and driver, what a user of store-then-process may rely on. It uses the exported
// API, and looks into the tables where the API cannot tell: who has a lease, when a message is due.
package stored_test

import (
	"testing"

	"github.com/watermill-inbox/inbox/tests/leaks"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) {
	leaks.Verify(m)
}

// forEachEngine runs a behaviour on a database of its own on every engine, with an effects table.
func forEachEngine(t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB)) {
	t.Helper()
	testdb.ForEach(t, testdb.All, sentence, fn)
}

// forSQLite is for behaviours that no database has a part in.
func forSQLite(t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB)) {
	t.Helper()
	testdb.ForEach(t, []testdb.Engine{testdb.SQLite}, sentence, fn)
}
