// Package conformance_test shows, on every engine and driver, what a user of the inbox may rely on. It uses the exported
// API alone: the middleware called directly, or in a router on Watermill's in-memory Pub/Sub where the router has a part.
package conformance_test

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

// forEachPostgres is for behaviours that only PostgreSQL has.
func forEachPostgres(t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB)) {
	t.Helper()
	testdb.ForEach(t, []testdb.Engine{testdb.PQ, testdb.PGX}, sentence, fn)
}
