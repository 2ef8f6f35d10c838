package faults_test

import (
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A driver inside another one, as tracing needs it, does not tell the state of its transaction as easily as a bare one.
func TestTransactionEndedByAStatementThroughAWrappedDriver(t *testing.T) {
	t.Parallel()

	for _, engine := range testdb.All {
		t.Run(engine.Name, func(t *testing.T) {
			t.Parallel()

			db := testdb.Open(t, engine)
			db.New(t)
			insert := "INSERT INTO " + db.EffectsTable(t) + " (event) VALUES ('e')"

			wrapped := sql.OpenDB(connect(t, db))
			t.Cleanup(func() { wrapped.Close() })

			ib, err := inbox.New(wrapped, engine.Dialect, inbox.WithTable(db.Inbox()),
				inbox.WithConsumer(func(*message.Message) string { return "billing" }))
			if err != nil {
				t.Fatal(err)
			}

			runs := 0
			handler := ib.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				tx, _ := inbox.TxFromContext(msg.Context())
				runs++

				if _, err := tx.ExecContext(msg.Context(), insert); err != nil {
					return nil, err
				}

				if runs == 1 {
					_, err := tx.ExecContext(msg.Context(), "ROLLBACK")

					return nil, err
				}

				return nil, nil
			})

			if _, err := handler(message.NewMessage("e", nil)); err == nil {
				t.Error("acked although the handler rolled back")
			}

			if _, err := handler(message.NewMessage("e", nil)); err != nil {
				t.Error(err)
			}

			db.RequireOnce(t, "e")
		})
	}
}
