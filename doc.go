// Package inbox gives Watermill handlers effectively-once handling over any at-least-once broker.
//
// Brokers deliver events more than once: after a Kafka rebalance, a RabbitMQ redelivery, a NATS ack timeout, or an outbox
// relay that crashed between publishing and marking. The inbox pattern records the id of an event in the same database
// transaction as the business change, and acks the broker after the commit. An id that is known already is skipped.
//
//	ib, err := inbox.New(db, inbox.Postgres)
//	...
//	err = ib.Migrate(ctx)
//	...
//	router.AddMiddleware(ib.Middleware)
//
// A handler works in the transaction that it finds in the message's context:
//
//	func charge(msg *message.Message) error {
//		tx, _ := inbox.TxFromContext(msg.Context())
//		_, err := tx.ExecContext(msg.Context(), `INSERT INTO charges ...`)
//		return err
//	}
//
// # Long handlers
//
// A transaction that is open during a slow call holds a connection, and the broker waits for its ack. [Inbox.Subscriber] takes
// the place of the broker's subscriber instead: it stores events, acks them at once, and hands them out to the same router
// with leases, retries and dead letters. There the handler makes its call first and then writes in [InTx], which completes the
// event in the same transaction.
//
//	subscriber, err = ib.Subscriber("mailer", subscriber)
//
// # What is promised
//
// Whatever a handler writes through its transaction is committed exactly once for each (consumer, source, event id),
// as long as the event's row is kept: under concurrent redelivery, several processes, crashes at any point, and a change of
// broker. Nothing is acked before its row is committed. When anything fails, the transaction is rolled back together with the
// record of the event, and the next delivery runs the handler again. Messages that a handler returns are published at
// least once, always with the same UUIDs, even when the process dies between the commit and the publish. An event
// without a usable id is an error, never a guess.
//
// # What is not
//
// Effects outside of the transaction (an e-mail, a call to a payment provider) happen as often as the handler runs. Give
// the other side the event's id as idempotency key ([EventFromContext]), or return a message and let a handler of its own do it.
// Two events with different ids that mean the same thing are two events: a unique business key complements an inbox.
// Messages acked before the middleware ran are out of its reach.
//
// # How an event is identified
//
// By consumer (the router's handler name), source and id, see [Event]. The defaults read the metadata "event_id" and
// "event_source", CloudEvents in the spelling of every protocol binding, and then the message's UUID and the topic. Ids are
// compared byte for byte, through a 16-byte key ([KeyOf]) that is ordered by time where the id carries one. Producers do best to
// use UUIDv7 or ULID.
//
// # Errors
//
// An error that the middleware returns nacks the message. Handlers' errors are returned unchanged. The inbox's own
// begin with "inbox:" and name the event; [ErrNoEventID], [ErrNoConsumer], [ErrAlreadyAcked], [ErrInFlight], [ErrLeaseLost]
// and [ErrNotMigrated] can be told apart with errors.Is. Payloads are part of no error and no log line.
package inbox
