package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/inbox"
)

// An existing router gets one line; the handler uses the transaction from its context.
func Example() {
	db, err := sql.Open("postgres", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}

	ib, err := inbox.New(db, inbox.Postgres)
	if err != nil {
		log.Fatal(err)
	}

	if err := ib.Migrate(context.Background()); err != nil {
		log.Fatal(err)
	}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NewSlogLogger(nil))
	if err != nil {
		log.Fatal(err)
	}

	router.AddMiddleware(ib.Middleware)

	subscriber := gochannel.NewGoChannel(gochannel.Config{}, nil) // or RabbitMQ, Kafka, NATS, SQL
	router.AddConsumerHandler("billing", "orders", subscriber, func(msg *message.Message) error {
		tx, ok := inbox.TxFromContext(msg.Context())
		if !ok {
			return errors.New("handler needs the inbox middleware")
		}

		_, err := tx.ExecContext(msg.Context(), `INSERT INTO charges (order_id) VALUES ($1)`, string(msg.Payload))

		return err
	})

	if err := router.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// The key depends on nothing but the event, so it can be computed anywhere.
func ExampleKeyOf() {
	fmt.Println(inbox.KeyOf(inbox.Event{
		Consumer: "billing",
		Source:   "orders",
		ID:       "019adb40-0c00-7abc-8def-0123456789ab", // a UUIDv7: the key begins with its time
	}))
	fmt.Println(inbox.KeyOf(inbox.Event{Consumer: "billing", Source: "orders", ID: "4711"}))
	// Output:
	// 019adb40-0c00-3013-c7c3-095e441ad827
	// df04d59d-cb9e-98be-0a4a-c0b75bf1f502
}

// For a migration tool of one's own.
func ExampleSchema() {
	ddl, err := inbox.Schema(inbox.SQLite, inbox.WithTable("billing_inbox"))
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(ddl[:51])
	// Output:
	// CREATE TABLE IF NOT EXISTS "main"."billing_inbox_mi
}

// Bad settings fail early, with an error that names them.
func ExampleNew() {
	db, err := sql.Open("postgres", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	_, err = inbox.New(db, inbox.Postgres, inbox.WithLockTimeout(-time.Second))
	fmt.Println(err)
	// Output:
	// inbox: WithLockTimeout(-1s) must be positive and at most 596h31m23.647s
}

// Producers with several services behind one topic put their name and the id of their outbox row into the metadata.
func ExampleWithEventID() {
	opt := inbox.WithEventID(func(msg *message.Message) string { return msg.Metadata.Get("outbox_id") })
	source := inbox.WithSource(func(msg *message.Message) string { return msg.Metadata.Get("service") })

	db, err := sql.Open("postgres", "postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	_, err = inbox.New(db, inbox.Postgres, opt, source)
	fmt.Println(err)
	// Output: <nil>
}

// What must happen only after the commit, and may be lost when the process dies right after it, is registered.
func ExampleAfterCommit() {
	handler := func(msg *message.Message) error {
		inbox.AfterCommit(msg.Context(), func(context.Context) { fmt.Println("wake the worker") })

		return nil
	}

	// Outside of an inbox there is no commit to wait for, and AfterCommit reports false.
	fmt.Println(handler(message.NewMessage("1", nil)), inbox.AfterCommit(context.Background(), func(context.Context) {}))
	// Output: <nil> false
}

// A part of the handler's work can fail by itself.
func ExampleInTx() {
	handler := func(msg *message.Message) error {
		err := inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(msg.Context(), `INSERT INTO loyalty_points (order_id) VALUES ($1)`, string(msg.Payload))

			return err
		})
		if err != nil {
			log.Printf("order goes without points: %v", err) // whatever the function wrote is undone
		}

		return nil
	}
	_ = handler
}
