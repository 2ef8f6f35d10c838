package stored_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// told keeps what hooks are told.
type told struct {
	mu    sync.Mutex
	calls []string
}

func (c *told) hooks() inbox.Hooks {
	event := func(name string) func(context.Context, inbox.Event) {
		return func(_ context.Context, ev inbox.Event) { c.add(name + " " + ev.Consumer + " " + ev.ID) }
	}
	failure := func(name string) func(context.Context, inbox.Event, error) {
		return func(_ context.Context, ev inbox.Event, err error) {
			c.add(fmt.Sprintf("%s %s %s: %v", name, ev.Consumer, ev.ID, err))
		}
	}

	return inbox.Hooks{
		Processed: event("processed"), Duplicate: event("duplicate"), Failed: failure("failed"), Retried: failure("retried"), Dead: failure("dead"),
	}
}

func (c *told) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.calls = append(c.calls, call)
}

// take returns the calls since the last time.
func (c *told) take() (calls []string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	calls, c.calls = c.calls, nil

	return calls
}

func TestHooks(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "are told once of what became of each message", func(t *testing.T, db *testdb.DB) {
		for name, test := range map[string]struct {
			handle func(ib *inbox.Inbox, msg *message.Message)
			want   []string
		}{
			"ack":          {func(_ *inbox.Inbox, msg *message.Message) { msg.Ack() }, []string{"processed billing e"}},
			"InTx and ack": {func(_ *inbox.Inbox, msg *message.Message) { _ = write(db, msg, nil); msg.Ack() }, []string{"processed billing e"}},
			"middleware and ack": {func(ib *inbox.Inbox, msg *message.Message) {
				_, _ = ib.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })(msg)
				msg.Ack()
			}, []string{"processed billing e"}},
			"nacks": {
				func(_ *inbox.Inbox, msg *message.Message) { msg.Nack() },
				[]string{"failed billing e: message was nacked", "failed billing e: message was nacked", "dead billing e: message was nacked"},
			},
			"errors": {func(ib *inbox.Inbox, msg *message.Message) {
				_, _ = ib.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBroken })(msg)
				msg.Nack()
			}, []string{"failed billing e: broken", "failed billing e: broken", "dead billing e: broken"}},
			"errors in InTx": {func(_ *inbox.Inbox, msg *message.Message) {
				_ = write(db, msg, errBroken)
				msg.Nack()
			}, []string{"failed billing e: broken", "failed billing e: broken", "dead billing e: broken"}},
			"skipped": {func(_ *inbox.Inbox, msg *message.Message) { _ = write(db, msg, inbox.ErrSkip); msg.Nack() }, nil},
		} {
			var calls told

			ib := db.New(t, inbox.WithHooks(calls.hooks()), inbox.WithTable(fmt.Sprintf("%s.of_%x", db.Schema, name)))
			p := start(t, ib, retryAtOnce, inbox.WithMaxAttempts(2))
			p.store(t, "e")

			for range max(1, len(test.want)-1) { // attempts
				test.handle(ib, p.next(t))
			}

			p.close(t)
			require.Equal(t, "hooks after "+name, calls.take(), test.want)
		}
	})

	forEachEngine(t, "are told once of each duplicate", func(t *testing.T, db *testdb.DB) {
		var calls told

		p := start(t, db.New(t, inbox.WithHooks(calls.hooks())), inbox.WithIngest(4))
		sent := deliveries("e1", "e1", "e2")
		sendTogether(t, db, p, sent...)
		requireAcked(t, sent...)
		p.store(t, "e1")
		p.store(t, "e3")
		p.close(t)
		require.Equal(t, "hooks", calls.take(), []string{"duplicate billing e1", "duplicate billing e1"})
	})
}
