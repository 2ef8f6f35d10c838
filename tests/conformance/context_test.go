package conformance_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestContext(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "has the transaction, the same one with sqlx around it, and the event", func(t *testing.T, db *testdb.DB) {
		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			tx, ok := inbox.TxFromContext(msg.Context())
			require.Equal(t, "has a transaction", ok, true)

			sqlxTx, ok := inbox.SqlxTxFromContext(msg.Context())
			require.Equal(t, "has a sqlx transaction", ok, true)
			require.Equal(t, "same transaction", sqlxTx.Tx == tx, true)

			ev, ok := inbox.EventFromContext(msg.Context())
			require.Equal(t, "has an event", ok, true)
			require.Equal(t, "event", ev, inbox.Event{Consumer: billing, Source: "shop", ID: "e1", Type: "OrderPlaced"})

			return nil, nil
		}, &message.Message{UUID: "e1", Metadata: message.Metadata{"event_source": "shop", "event_type": "OrderPlaced"}})
		require.OK(t, err)
	})

	forEachEngine(t, "sqlx binds names for the engine", func(t *testing.T, db *testdb.DB) {
		type row struct{ Event, Note string }

		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.SqlxTxFromContext(msg.Context())

			_, err := tx.NamedExecContext(msg.Context(), "INSERT INTO "+db.Table("effects")+" (event, note) VALUES (:event, :note)",
				[]row{{"e1", "first"}, {"e2", "second"}})
			require.OK(t, err)

			rows, err := tx.NamedQuery("SELECT event, note FROM "+db.Table("effects")+" WHERE note = :note", map[string]any{"note": "second"})
			require.OK(t, err)

			var got row

			require.Equal(t, "has a row", rows.Next(), true)
			require.OK(t, rows.StructScan(&got))
			require.Equal(t, "row", got, row{"e2", "second"})
			require.OK(t, rows.Close())

			var n int
			require.OK(t, tx.Get(&n, tx.Rebind("SELECT count(*) FROM "+db.Table("effects")+" WHERE event = ?"), "e1"))
			require.Equal(t, "rebound count", n, 1)

			return nil, nil
		}, delivery("e1"))
		require.OK(t, err)
		db.RequireOnce(t, "e1", "e2")
	})

	forEachEngine(t, "has nothing outside of an inbox and no transaction after the handler", func(t *testing.T, db *testdb.DB) {
		requireNone := func(ctx context.Context) {
			t.Helper()

			if tx, ok := inbox.TxFromContext(ctx); ok || tx != nil {
				t.Error("has a transaction")
			}

			if tx, ok := inbox.SqlxTxFromContext(ctx); ok || tx != nil {
				t.Error("has a sqlx transaction")
			}
		}

		requireNone(context.Background())

		if _, ok := inbox.EventFromContext(context.Background()); ok {
			t.Error("has an event")
		}

		var handlers context.Context

		_, err := deliver(newInbox(t, db), func(msg *message.Message) ([]*message.Message, error) {
			handlers = msg.Context()

			return nil, nil
		}, delivery("e1"))
		require.OK(t, err)
		requireNone(handlers)
	})

	forEachEngine(t, "keeps the message's own values and follows a middleware inside that derives from it", func(t *testing.T, db *testdb.DB) {
		type key struct{}

		ib := newInbox(t, db)
		inside := func(msg *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithTimeout(msg.Context(), require.Patience) // as Watermill's Timeout does
			defer cancel()

			msg.SetContext(ctx)
			require.Equal(t, "value", msg.Context().Value(key{}), any("value"))

			return newWorker(db).handle(msg)
		}

		for range 2 {
			msg := delivery("e1")
			msg.SetContext(context.WithValue(context.Background(), key{}, "value"))

			_, err := deliver(ib, inside, msg)
			require.OK(t, err)
		}

		db.RequireOnce(t, "e1")
	})
}
