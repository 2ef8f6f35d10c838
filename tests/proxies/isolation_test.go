package proxies_test

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func forEachStricterLevel(t *testing.T, sentence string, fn func(t *testing.T, db *testdb.DB, level inbox.Option)) {
	t.Helper()
	t.Run(sentence, func(t *testing.T) {
		t.Parallel()

		for _, engine := range []testdb.Engine{testdb.PQ, testdb.PGX} {
			for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
				t.Run(engine.Name+" "+level.String(), func(t *testing.T) {
					t.Parallel()

					db := testdb.Open(t, engine)
					db.SetMaxOpenConns(20)
					db.EffectsTable(t)
					fn(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: level}))
				})
			}
		}
	})
}

func awaitWaitingClaim(t *testing.T, db *testdb.DB) {
	t.Helper()
	require.Eventually(t, "a claim waits", func() bool {
		return db.Int(t, `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO "`+db.Schema+`"."inbox"%'`) > 0
	})
}

func TestIsolation(t *testing.T) {
	t.Parallel()

	forEachStricterLevel(t, "concurrent duplicates all end without an error and with one effect",
		func(t *testing.T, db *testdb.DB, level inbox.Option) {
			var (
				runs, retried atomic.Int32
				ib            = newInbox(t, db, level, retries(&retried))
				ids           = eventIDs("event", 2)
			)

			h := func(msg *message.Message) ([]*message.Message, error) {
				awaitWaitingClaim(t, db) // a duplicate whose snapshot is older than this transaction's commit

				return charge(db, &runs)(msg)
			}

			require.OK(t, together(ids, 8, func(id string) error {
				_, err := deliver(ib, h, id)

				return err
			}))
			requireAllOnce(t, db, ids...)
			require.Equal(t, "runs", int(runs.Load()), len(ids))

			if retried.Load() == 0 {
				t.Error("no claim met a serialization failure, so this showed nothing")
			}
		})

	forEachStricterLevel(t, "events that change the same row, two deliveries each, all change it once",
		func(t *testing.T, db *testdb.DB, level inbox.Option) {
			stock := db.Table("stock")
			db.Exec(t, "CREATE TABLE "+stock+" AS SELECT 100 AS pieces")

			var (
				runs, retried atomic.Int32
				ib            = newInbox(t, db, level, retries(&retried))
				ids           = eventIDs("event", 16)
				reads         atomic.Int32
				meet          sync.WaitGroup
			)

			meet.Add(2)

			// Reads and writes in two statements: a lost update, were it not for the isolation level.
			sell := func(msg *message.Message) ([]*message.Message, error) {
				tx, _ := inbox.TxFromContext(msg.Context())

				var pieces int
				if err := tx.QueryRowContext(msg.Context(), "SELECT pieces FROM "+stock).Scan(&pieces); err != nil {
					return nil, err
				}

				if reads.Add(1) <= 2 { // two events at least are in conflict
					meet.Done()
					meet.Wait()
				}

				if _, err := tx.ExecContext(msg.Context(), "UPDATE "+stock+" SET pieces = $1", pieces-1); err != nil {
					return nil, err
				}

				return charge(db, &runs)(msg)
			}

			require.OK(t, together(ids, 2, func(id string) error {
				return untilHandled(ib, sell, id)
			}))
			requireAllOnce(t, db, ids...)
			require.Equal(t, "pieces left", db.Int(t, "SELECT pieces FROM "+stock), 100-len(ids))

			if retried.Load() == 0 {
				t.Error("nothing was in conflict, so this showed nothing")
			}
		})

	t.Run("a condition over many rows holds at SERIALIZABLE", func(t *testing.T) {
		t.Parallel()

		const seats = 5

		db := testdb.Open(t, testdb.PQ)
		db.SetMaxOpenConns(20)
		effects := db.EffectsTable(t)

		var (
			runs atomic.Int32
			ib   = newInbox(t, db, inbox.WithTxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))
			ids  = eventIDs("booking", 16)
		)

		book := func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())

			var booked int
			if err := tx.QueryRowContext(msg.Context(), "SELECT count(*) FROM "+effects).Scan(&booked); err != nil {
				return nil, err
			}

			if booked == seats {
				return nil, nil
			}

			return charge(db, &runs)(msg)
		}

		require.OK(t, together(ids, 2, func(id string) error {
			return untilHandled(ib, book, id)
		}))
		require.Equal(t, "booked seats", db.Int(t, "SELECT count(*) FROM "+effects), seats)
		require.Equal(t, "handled bookings", db.Int(t, "SELECT count(*) FROM "+db.Table("inbox")), len(ids))
	})
}
