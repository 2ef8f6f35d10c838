package proxies_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

var asBilling = inbox.WithConsumer(func(*message.Message) string { return "billing" })

func newInbox(t testing.TB, db *testdb.DB, opts ...inbox.Option) *inbox.Inbox {
	t.Helper()

	return db.New(t, append([]inbox.Option{asBilling}, opts...)...)
}

func deliver(ib *inbox.Inbox, h message.HandlerFunc, id string) ([]*message.Message, error) {
	return ib.Middleware(h)(message.NewMessage(id, nil))
}

// untilHandled delivers again after errors, like a broker.
func untilHandled(ib *inbox.Inbox, h message.HandlerFunc, id string) error {
	for deadline := time.Now().Add(require.Patience); ; {
		if _, err := deliver(ib, h, id); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// charge is a handler that writes its effect and returns one output where it has somewhere to publish it.
func charge(db *testdb.DB, runs *atomic.Int32) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		runs.Add(1)

		tx, ok := inbox.TxFromContext(msg.Context())
		if !ok {
			return nil, errors.New("the handler has no transaction")
		}

		_, err := tx.ExecContext(msg.Context(), "INSERT INTO "+db.Table("effects")+" (event) VALUES ($1)", msg.UUID)
		if err != nil {
			return nil, err
		}

		return message.Messages{message.NewMessage("receipt of "+msg.UUID, nil)}, nil
	}
}

func eventIDs(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
	}

	return ids
}

// together calls fn for all ids at once, copies times each.
func together(ids []string, copies int, fn func(id string) error) error {
	var (
		all   sync.WaitGroup
		begin = make(chan struct{})
		errs  = make([]error, len(ids)*copies)
	)

	for i := range errs {
		all.Go(func() {
			<-begin

			errs[i] = fn(ids[i%len(ids)])
		})
	}

	close(begin)
	all.Wait()

	return errors.Join(errs...)
}

// requireAllOnce fails unless each event has one effect and one row in the ledger.
func requireAllOnce(t testing.TB, db *testdb.DB, ids ...string) {
	t.Helper()

	db.RequireOnce(t, ids...)
	require.Equal(t, "recorded events", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")), len(ids))
}

// retries counts attempts that were run again.
func retries(n *atomic.Int32) inbox.Option {
	return inbox.WithHooks(inbox.Hooks{Retried: func(context.Context, inbox.Event, error) { n.Add(1) }})
}
