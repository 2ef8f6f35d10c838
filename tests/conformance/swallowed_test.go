package conformance_test

import (
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestSwallowedSQLError(t *testing.T) {
	t.Parallel()

	for name, outputs := range map[string][]*message.Message{"without": nil, "with": {delivery("o1")}} {
		// PostgreSQL answers the COMMIT of an aborted transaction with a ROLLBACK and no error.
		forEachPostgres(t, "fails the message "+name+" outputs and redelivery runs", func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db), newWorker(db)
			w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
				if run == 1 {
					_ = raise(msg, "23505")
				}

				return outputs, nil
			}

			_, err := deliver(ib, w.handle, delivery("e1"))
			if err == nil {
				t.Fatal("a message was acked whose transaction was rolled back")
			}

			db.RequireOnce(t)

			got, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			require.Equal(t, "outputs", uuids(got), uuids(outputs))
			db.RequireOnce(t, "e1")
		})
	}

	// camel 24710, spring-integration 3609
	forEachEngine(t, "a duplicate key that is caught around InTx leaves the transaction usable", func(t *testing.T, db *testdb.DB) {
		db.Exec(t, "CREATE TABLE "+db.Table("customers")+" (id text PRIMARY KEY)")

		ib := newInbox(t, db)
		h := func(msg *message.Message) ([]*message.Message, error) {
			for range 2 {
				_ = inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
					_, err := tx.ExecContext(msg.Context(), "INSERT INTO "+db.Table("customers")+" VALUES ('c1')")

					return err
				})
			}

			return nil, effect(db, msg.Context())
		}

		for range 2 {
			_, err := deliver(ib, h, delivery("e1"))
			require.OK(t, err)
		}

		db.RequireOnce(t, "e1")
		require.Equal(t, "customers", db.Int(t, "SELECT count(*) FROM "+db.Table("customers")), 1)
	})
}
