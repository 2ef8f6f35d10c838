// Package datalayers shows how a handler uses the inbox's transaction with whatever a service talks to its database
// with: plain SQL, sqlx, sqlc, GORM, ent and bun. Each has a file with one handler, and all of them charge for an order.
//
// It is always the same move: take the transaction out of the message's context, and give it to the library in the place of
// the pool. What goes wrong is also the same: a query that goes through the pool is committed on its own, before and whether or
// not the event is. The tests run the handlers with inboxtest.RequireOnce, which finds that.
//
// The libraries must not end the transaction. All of them can be told to use it and leave it alone; a nested transaction
// of theirs has to be a savepoint, for which there is inbox.InTx.
package datalayers
