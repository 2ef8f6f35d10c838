package modes_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A handler that knows the transaction, and one that only uses InTx, do the same in each mode.
func TestHandlerDoesNotKnowItsMode(t *testing.T) {
	t.Parallel()

	for name, handler := range map[string]func(*testdb.DB) message.HandlerFunc{"TxFromContext": byTx, "InTx": byInTx} {
		for _, m := range []mode{sameTx, stored, sameTxWithBacklog} {
			forEachEngine(t, fmt.Sprintf("%s in %s", name, m), func(t *testing.T, db *testdb.DB) {
				w := newWorld(t, db)
				d := w.deploy(t, m, handling(handler(db)))

				d.deliver(t, "order-1", "order-2", "order-1")

				w.requirePublished(t, "order-1", "order-2")
				w.awaitNothingStored(t)
				w.RequireOnce(t, "order-1", "order-2")
				require.Equal(t, "runs", w.runs.of("order-1"), 1)
			})
		}
	}

	forEachEngine(t, "InTx in store-then-process without the middleware", func(t *testing.T, db *testdb.DB) {
		w := newWorld(t, db)
		d := w.deploy(t, storedPlain, handling(byInTx(db)), func(s *service) { s.pub = nil })

		d.deliver(t, "order-1", "order-2", "order-1")

		require.Eventually(t, "both are handled", func() bool { return len(w.Effects(t)) == 2 })
		w.awaitNothingStored(t)
		w.RequireOnce(t, "order-1", "order-2")
	})
}

// An event has one key in both modes, whatever it is made of, so that one that was handled in one mode is a duplicate in the
// other.
func TestEventIsTheSameInBothModes(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*service){
		"by default": func(*service) {},
		"with an event time": with(inbox.WithEventTime(func(*message.Message) (time.Time, bool) {
			return time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC), true
		})),
		"with a consumer that is not the handler's name": func(s *service) {
			s.handlerName = "anything"
			s.options = append(s.options, inbox.WithConsumer(func(*message.Message) string { return billing }))
		},
		"with a source that is made of what the router knows": with(inbox.WithSource(func(msg *message.Message) string {
			return message.SubscribeTopicFromCtx(msg.Context()) + "/" + message.HandlerNameFromCtx(msg.Context())
		})),
		"with ids and types of the user's": with(
			inbox.WithEventID(func(msg *message.Message) string { return "\x00\xff" + msg.Metadata.Get("event_id") }),
			inbox.WithEventType(func(msg *message.Message) string {
				return message.SubscribeTopicFromCtx(msg.Context()) + " " + string(msg.Payload)
			}),
		),
	} {
		for _, way := range [][2]mode{{sameTx, stored}, {stored, sameTx}, {storedPlain, sameTx}, {sameTx, storedPlain}} {
			forEachEngine(t, fmt.Sprintf("%s, from %s to %s", name, way[0], way[1]), func(t *testing.T, db *testdb.DB) {
				w := newWorld(t, db)

				var told, seen hooks

				note := func(s *service) {
					s.handle, s.pub = seeing(db, &seen), nil
					s.options = append(s.options, inbox.WithHooks(inbox.Hooks{Processed: told.processed, Duplicate: told.duplicate}))
				}

				before := w.deploy(t, way[0], change, note)
				before.deliver(t, "order-1")
				require.Eventually(t, "it is handled", func() bool { return len(w.Effects(t)) == 1 })
				w.awaitNothingStored(t)
				before.stop(t)

				after := w.deploy(t, way[1], change, note)
				after.deliver(t, "order-1")
				after.deliver(t, "order-2") // which gets another id and nothing else
				require.Eventually(t, "it is handled", func() bool { return len(w.Effects(t)) == 2 })
				w.awaitNothingStored(t)
				require.Eventually(t, "the hooks are told", func() bool { return len(told.of()) == 3 })

				events := told.of()
				require.Equal(t, "events of the duplicate", events[1], events[0])
				require.Equal(t, "events that the handlers have seen", seen.of(), []inbox.Event{events[0], events[2]})

				other := events[2]
				require.Equal(t, "another event", other.ID[len(other.ID)-7:], "order-2")
				require.Equal(t, "consumers", []string{events[0].Consumer, other.Consumer}, []string{billing, billing})
				require.Equal(t, "sources", events[0].Source, other.Source)
				require.Equal(t, "times", events[0].Time, other.Time)
			})
		}
	}
}

// seeing writes an effect, and keeps what EventFromContext tells.
func seeing(db *testdb.DB, seen *hooks) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ev, _ := inbox.EventFromContext(msg.Context())
		seen.add(ev)

		return nil, inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
			query := "INSERT INTO " + db.Table("effects") + " (event) VALUES ($1)"
			_, err := tx.ExecContext(context.WithoutCancel(msg.Context()), query, fmt.Sprintf("%q", ev.ID))

			return err
		})
	}
}

// hooks keep the events that they are told of, in order.
type hooks struct {
	mu     sync.Mutex
	events []inbox.Event
}

func (h *hooks) processed(_ context.Context, ev inbox.Event) { h.add(ev) }
func (h *hooks) duplicate(_ context.Context, ev inbox.Event) { h.add(ev) }

func (h *hooks) add(ev inbox.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()

	h.events = append(h.events, ev)
}

func (h *hooks) of() []inbox.Event {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.events
}
