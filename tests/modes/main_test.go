// Package modes_test shows that a handler does not know its mode, and that a service can be moved from same-transaction mode
// to store-then-process and back, at once or machine by machine, with messages in flight: every effect happens once, every
// output is published under one UUID, and nothing stays behind. Services run in real routers, on a Pub/Sub in memory and every
// engine, and in processes that are killed on RabbitMQ, Kafka and NATS.
package modes_test

import (
	"testing"

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
		db.SetMaxOpenConns(poolSize)
		db.New(t)
		fn(t, db)
	})
}

// poolSize keeps many tests at once within the server's connections.
const poolSize = 6
