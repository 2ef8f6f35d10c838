package inboxtest_test

import (
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

var t *testing.T // of the test around the example

func TestExamples(tt *testing.T) {
	tt.Parallel()

	t = tt

	ExampleRequireOnce()
	ExampleRequireOnce_effect()
	ExampleDeliver()
}

// ship is a handler of some service.
func ship(msg *message.Message) ([]*message.Message, error) {
	tx, _ := inbox.TxFromContext(msg.Context())

	_, err := tx.ExecContext(msg.Context(), `INSERT INTO shipments (order_id) VALUES (?)`, string(msg.Payload))
	if err != nil {
		return nil, err
	}

	return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, nil
}

// One line tests a handler against everything that brokers and databases do.
func ExampleRequireOnce() {
	env := inboxtest.New(t)
	env.Exec(t, `CREATE TABLE shipments (order_id TEXT)`)

	msg := message.NewMessage(watermill.NewUUID(), []byte("order-1"))
	inboxtest.RequireOnce(t, env, ship, msg, inboxtest.Count(t, `SELECT count(*) FROM shipments`))
}

// Any number that the message raises by one will do.
func ExampleRequireOnce_effect() {
	env := inboxtest.New(t)
	env.Exec(t, `CREATE TABLE shipments (order_id TEXT)`)

	parcelsOfOrder := func(db *sql.DB) (n int) {
		if err := db.QueryRow(`SELECT count(*) FROM shipments WHERE order_id = 'order-1'`).Scan(&n); err != nil {
			t.Fatal(err)
		}

		return n
	}

	inboxtest.RequireOnce(t, env, ship, message.NewMessage(watermill.NewUUID(), []byte("order-1")), parcelsOfOrder)
}

// Single deliveries are for looking closer.
func ExampleDeliver() {
	env := inboxtest.New(t)
	env.Exec(t, `CREATE TABLE shipments (order_id TEXT)`)

	msg := message.NewMessage(watermill.NewUUID(), []byte("order-1"))

	outputs, err := inboxtest.Deliver(t, env, ship, msg)
	if err != nil || len(outputs) != 1 || string(outputs[0].Payload) != "order-1" {
		t.Errorf("outputs %v, error %v", outputs, err)
	}
}

// Handlers with PostgreSQL's SQL are tested on PostgreSQL, in a schema that is the test's own.
func ExampleNewWith() {
	db, err := sql.Open("postgres", "postgres://localhost/shop_test?search_path=test_of_ship")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()

	env := inboxtest.NewWith(t, db, inbox.Postgres, inbox.WithTable("test_of_ship.inbox"))
	env.Exec(t, `CREATE TABLE shipments (order_id text)`)
}
