package crash

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox/tests/require"
)

// A worker with a million stored messages before it needs no more memory than with few, and is no slower, even when a
// transaction keeps PostgreSQL from forgetting the finished ones.
//
// REPORTS 23, https://github.com/spring-projects/spring-modulith/issues/1148: reading the whole backlog at start exhausts
// memory.
func TestBacklogOfAMillionMessages(t *testing.T) {
	t.Parallel()

	const (
		samples     = 200
		backlog     = 1_000_000
		part        = 20_000
		concurrency = 16 // the default
		mostMemory  = 50 << 20
		mostRead    = 500 // rows, for each message that is handled
		leastRate   = 50  // per second, on a machine that has much else to do
	)

	db := newTables(t, startServer(t, "postgres").Addr())
	store(t, db, "gate", samples)
	db.sample(t)

	// Its statements are prepared, and run more often than PostgreSQL runs a statement before it keeps a plan, on tables that
	// are nearly empty.
	args := []string{"-dsn=" + db.DSN, "-schema=" + db.Schema, "-topic=orders", "-handlers=gate"}
	first := start(t, newTally(), worker, nil, args...)
	first.release(t)
	require.Eventually(t, "the samples are finished", func() bool { return db.unfinished(t) == 0 })

	began := time.Now()

	db.fill(t, backlog)
	t.Logf("%d messages stored in %.1f s, %d MB", backlog, time.Since(began).Seconds(),
		db.Int(t, `SELECT pg_total_relation_size($1::regclass)`, db.Table("inbox_payloads"))>>20)

	// What is finished stays in the indexes as long as a transaction might see it.
	report, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.OK(t, err)
	_, err = report.ExecContext(t.Context(), `SELECT`)
	require.OK(t, err)

	began = time.Now()
	transactions, rows := db.work(t)

	await(t, "a part of the backlog to be handled", func() bool { return first.told.of("gate done") >= samples+part })

	require.OK(t, report.Rollback())

	rate := part / time.Since(began).Seconds()
	transactionsAfter, rowsAfter := db.work(t)
	read := (rowsAfter - rows) / part
	t.Logf("a worker handled %.0f of them per second, in %.2f transactions each, which read %d rows",
		rate, float64(transactionsAfter-transactions)/part, read)

	peak := first.peakMemory(t)
	first.kill()
	second := start(t, newTally(), worker, nil, args...)
	require.Eventually(t, "a new worker has its hands full", func() bool { return second.told.of("gate called") == concurrency })

	held := db.Int(t, `SELECT max(n) FROM (SELECT count(*) AS n FROM `+db.Table("inbox_payloads")+`
		WHERE owner IS NOT NULL GROUP BY owner) AS owners`)
	again := second.peakMemory(t)
	t.Logf("the worker needed at most %d MB; a new one leased %d messages and needed at most %d MB", peak>>20, held, again>>20)

	require.Equal(t, "messages in the hands of one worker", held, concurrency)

	if most := max(peak, again); most > mostMemory {
		t.Errorf("a worker needed %d MB, more than %d", most>>20, mostMemory>>20)
	}

	if read > mostRead {
		t.Errorf("for each message that was handled, %d rows were read, more than %d", read, mostRead)
	}

	if rate < leastRate {
		t.Errorf("a worker handled %.0f messages per second, fewer than %d", rate, leastRate)
	}
}

// sample keeps copies of what is stored.
func (db tables) sample(t *testing.T) {
	t.Helper()
	db.Exec(t, `CREATE TABLE `+db.Table("samples")+` AS
		SELECT row_number() OVER () - 1 AS n, l.consumer, l.source, l.event_id, l.event_type, p.queue, p.message
		FROM `+db.Inbox()+` AS l JOIN `+db.Table("inbox_payloads")+` AS p ON p.key = l.key`)
}

// fill stores the samples again and again, in one transaction.
func (db tables) fill(t *testing.T, messages int) {
	t.Helper()

	rows := `FROM generate_series(1, $1) AS i JOIN ` + db.Table("samples") + ` AS s
		ON s.n = i % (SELECT count(*) FROM ` + db.Table("samples") + `)`

	tx, err := db.BeginTx(t.Context(), nil)
	require.OK(t, err)

	for _, insert := range []string{
		`INSERT INTO ` + db.Inbox() + ` (key, consumer, source, event_id, event_type)
			SELECT md5('backlog ' || i)::uuid, s.consumer, s.source, s.event_id, s.event_type ` + rows,
		`INSERT INTO ` + db.Table("inbox_payloads") + ` (key, queue, due_at, attempts, message)
			SELECT md5('backlog ' || i)::uuid, s.queue, now() + i * interval '1 us', 0, s.message ` + rows + ` ORDER BY i`,
	} {
		_, err := tx.ExecContext(t.Context(), insert, messages)
		require.OK(t, err)
	}

	require.OK(t, tx.Commit())
}

// work returns how many transactions were committed on the server, and how many rows and index entries of stored messages
// were read.
func (db tables) work(t *testing.T) (transactions, rows int) {
	t.Helper()

	return db.Int(t, `SELECT sum(xact_commit) FROM pg_stat_database`), db.Int(t, `SELECT
		(SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relid = $1::regclass)
		+ (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = $1::regclass)`, db.Table("inbox_payloads"))
}

// peakMemory returns the most bytes that the process has had in memory.
func (p *process) peakMemory(t *testing.T) int {
	t.Helper()

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.OK(t, err)

	_, after, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	require.OK(t, err)

	return kilobytes << 10
}
