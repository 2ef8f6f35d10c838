// Package inboxtest tests that a handler can be delivered to again and again and still has its effect once.
//
// The inbox keeps its promise for what a handler writes through the transaction in its context, and for nothing else. A
// handler that takes another connection by mistake, remembers in memory what was rolled back, or swallows the error of a
// statement works in every test that calls it once, and doubles or loses its effect on the first bad day. This package
// makes the bad days:
//
//	func TestCharge(t *testing.T) {
//		env := inboxtest.New(t) // a throw-away SQLite database with an inbox in it
//		env.Exec(t, `CREATE TABLE charges (order_id TEXT)`)
//
//		msg := message.NewMessage(watermill.NewUUID(), []byte("order-1"))
//		inboxtest.RequireOnce(t, env, charge, msg, inboxtest.Count(t, `SELECT count(*) FROM charges`))
//	}
//
// [RequireOnce] runs the handler in a router behind the middleware. The handler fails and panics after its work, each
// of its statements fails, its commit is refused, collides with another transaction, and succeeds without the answer getting
// through, while copies of the message arrive one after another and at the same time. When the effect is not there
// exactly once, the test fails and says what the handler most likely did wrong.
//
// # What to count
//
// The effect is a number read from the database that one handled message raises by exactly one: the charges of an order, the
// orders with a shipment. It is read after each delivery, from outside of any transaction.
//
// # Databases
//
// [New] needs nothing installed. Handlers whose SQL only PostgreSQL understands use [NewWith] and a pool of their own.
//
// # What it does not find
//
// Calls to other services, mails and files: they are repeated with every run of the handler, which is why they belong
// outside of it, or need the event's id as idempotency key. Statements that a handler writes from a goroutine which
// it does not wait for. And on PostgreSQL, a handler that waits for a row on one connection that it has locked on the
// other waits for ever: the test's own timeout ends that.
package inboxtest
