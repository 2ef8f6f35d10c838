// Package conformance_test shows, on every engine and driver, what a user of the inbox may rely on. It uses the exported
// API alone: the middleware called directly, or in a router on Watermill's in-memory Pub/Sub where the router has a part.
package conformance_test

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) {
	// The goroutine that starts servers lives as long as the process: have it there before looking for leaks.
	cmd := exec.Command("true")
	if err := errors.Join(servers.StartTied(cmd, syscall.SIGKILL), cmd.Wait()); err != nil {
		panic(err)
	}

	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
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
