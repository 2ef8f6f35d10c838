package stored_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// PostgreSQL plans by what it knows of a table, which for a queue is out of date most of the time.
func TestLookups(t *testing.T) {
	t.Parallel()

	testdb.ForEach(t, []testdb.Engine{testdb.PQ, testdb.PGX}, "read what they look for, when PostgreSQL thinks that there is nothing", func(
		t *testing.T, db *testdb.DB,
	) {
		const (
			messages = 60
			bloat    = 20_000
			mostRead = 200 * messages // rows and index entries; reading all of an index once is more
		)

		db.New(t)

		report, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, report.Rollback()) })
		_, err = report.ExecContext(t.Context(), "SELECT 1")
		require.OK(t, err)

		// Counts of what was read are published when a connection ends, at the latest.
		past := another(t, db)
		past.Exec(t, "INSERT INTO "+db.Inbox()+` (key, consumer, source, event_id, event_type)
			SELECT md5(i::text)::uuid, 'other', '', i, '' FROM generate_series(1, $1::int) AS i`, bloat)
		past.Exec(t, "INSERT INTO "+db.Table("inbox_payloads")+` (key, queue, lane, attempts, message)
			SELECT md5(i::text)::uuid, md5('')::uuid, i, 0, '' FROM generate_series(1, $1::int) AS i`, bloat)

		for _, table := range []string{"inbox", "inbox_payloads"} {
			past.Exec(t, "DELETE FROM "+db.Table(table))
			past.Exec(t, "ANALYZE "+db.Table(table))
		}

		require.OK(t, past.Close())
		awaitCount(t, db, "n_tup_del", bloat)

		before := readFrom(t, db)
		pool := another(t, db)

		p := start(t, pool.New(t), byLetters, retryAtOnce, inbox.WithLease(500*time.Millisecond), inbox.WithIngest(messages))
		sent := deliveries(append(numbered("e", messages/2), numbered("", messages/2)...)...)
		p.broker.send(t, orders, sent...)
		requireAcked(t, sent...)

		for n := range messages {
			msg := p.next(t)
			if n%5 == 0 {
				msg.Nack() // and it comes again

				continue
			}

			require.OK(t, write(pool, msg, nil))
			msg.Ack()
		}

		p.close(t)
		require.OK(t, pool.Close())
		awaitCount(t, db, "n_tup_ins", bloat+messages)

		if read := readFrom(t, db) - before; read > mostRead {
			t.Errorf("%d rows and index entries were read for %d messages, more than %d", read, messages, mostRead)
		}
	})
}

func awaitCount(t testing.TB, db *testdb.DB, count string, atLeast int) {
	t.Helper()
	require.Eventually(t, fmt.Sprintf("%s is %d", count, atLeast), func() bool {
		return db.Int(t, "SELECT "+count+" FROM pg_stat_user_tables WHERE relid = $1::regclass", db.Table("inbox_payloads")) >= atLeast
	})
}

func readFrom(t testing.TB, db *testdb.DB) int {
	t.Helper()

	return db.Int(t, `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = $1)
		+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = $1)`, db.Schema)
}
