// Package deadletters_test shows what same-transaction mode does with messages that keep failing, with WithMaxAttempts and
// without: when a failure counts, what is kept, and how a dead letter comes back or goes for good. Handlers run in a real
// router, on a Pub/Sub in memory that delivers a nacked message again at once, and on RabbitMQ, Kafka and NATS, where some of
// them kill their process.
package deadletters_test

import (
	"slices"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/leaks"
	"github.com/watermill-inbox/inbox/tests/modes/process"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) {
	process.Main(childVariable, childSpec.run)
	leaks.Verify(m, leaks.OfBrokerClients()...)
}

// forEachEngine runs a behaviour on a database of its own on every engine, with an effects table.
func forEachEngine(t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB)) {
	t.Helper()
	testdb.ForEach(t, testdb.All, sentence, func(t *testing.T, db *testdb.DB) {
		db.SetMaxOpenConns(6) // many tests at once share the server
		fn(t, db)
	})
}

// n is how often a message may fail.
const n = 3

// both runs a behaviour with failures counted afterwards, and beforehand.
func both(
	t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB, opts ...inbox.Option), opts ...inbox.Option,
) {
	t.Helper()

	opts = append(opts, inbox.WithMaxAttempts(n))
	forEachEngine(t, sentence, func(t *testing.T, db *testdb.DB) { fn(t, db, slices.Clone(opts)...) })
	forEachEngine(t, sentence+", with a crash guard", func(t *testing.T, db *testdb.DB) {
		fn(t, db, append(slices.Clone(opts), inbox.WithCrashGuard())...)
	})
}
