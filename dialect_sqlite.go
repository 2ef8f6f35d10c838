package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

type sqlite struct{}

func (sqlite) name() string          { return "sqlite" }
func (sqlite) bindDriver() string    { return "sqlite3" }
func (sqlite) defaultSchema() string { return "main" }
func (sqlite) keyArg(k Key) any      { return k[:] }

// supports every level that there is, since all transactions of SQLite's are serializable.
func (sqlite) supports(level sql.IsolationLevel) bool {
	return level >= sql.LevelDefault && level <= sql.LevelLinearizable
}

func (sqlite) queries(t tables, _ time.Duration) queries {
	fill := func(text string) string { return t.fill(sqliteShorthands.Replace(text)) }

	return queries{
		claim: fmt.Sprintf(`INSERT INTO %s (key, consumer, source, event_id, event_type, processed_at)
			VALUES (?1, ?2, ?3, ?4, ?5, strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')) ON CONFLICT (key) DO NOTHING`, t.ledger),
		storeOutputs: fmt.Sprintf(`INSERT INTO %s (key, messages) SELECT key, ?2 FROM %s WHERE key = ?1
			ON CONFLICT (key) DO UPDATE SET messages = excluded.messages`, t.outputs, t.ledger),
		known:        fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s WHERE key = ?1 AND processed_at IS NOT NULL)`, t.ledger),
		loadOutputs:  fmt.Sprintf(`SELECT messages FROM %s WHERE key = ?1`, t.outputs),
		forget:       fmt.Sprintf(`DELETE FROM %s WHERE key = ?1`, t.ledger),
		forgetOutput: fmt.Sprintf(`DELETE FROM %s WHERE key = ?1`, t.outputs),

		storeEvents: fill(`INSERT INTO {ledger} (key, consumer, source, event_id, event_type)
			SELECT unhex({0}), ?1, {1}, {2}, {3} FROM json_each(?2) AS r WHERE true
			ON CONFLICT (key) DO NOTHING RETURNING key`),
		strays: fill(`SELECT l.key FROM {ledger} AS l WHERE l.key IN (SELECT unhex({0}) FROM json_each(?1) AS r)
			AND NOT EXISTS (SELECT 1 FROM {payloads} AS p WHERE p.key = l.key)
			AND (l.processed_at IS NULL OR EXISTS (SELECT 1 FROM {outputs} AS o WHERE o.key = l.key))`),
		storeMessages: fill(`INSERT INTO {payloads} (key, queue, lane, due_at, owner, lease, attempts, message)
			SELECT unhex({0}), ?1, CAST(NULLIF({1}, '') AS INTEGER),
				CASE WHEN {2} <> '' THEN {now} + ?3 WHEN {1} = '' THEN {now} END,
				CASE WHEN {2} <> '' THEN ?2 END, CAST(NULLIF({2}, '') AS INTEGER),
				CASE WHEN {2} <> '' THEN 1 ELSE 0 END, substr(?4, CAST({3} AS INTEGER), CAST({4} AS INTEGER))
			FROM json_each(?5) AS r WHERE true ORDER BY r.key ON CONFLICT (key) DO NOTHING`),
		lease: fill(`UPDATE {payloads} AS p SET owner = ?2, lease = ?4, attempts = p.attempts + 1, due_at = {now} + ?3
			WHERE p.seq IN (SELECT seq FROM {payloads} WHERE queue = ?1 AND due_at <= {now}
				AND (due_at, seq) > (?6, ?7) ORDER BY due_at, seq LIMIT ?5)
			RETURNING key, seq, attempts, COALESCE(lane, 0), message,
				EXISTS (SELECT 1 FROM {ledger} AS l WHERE l.key = {payloads_name}.key AND l.processed_at IS NOT NULL),
				EXISTS (SELECT 1 FROM {outputs} AS o WHERE o.key = {payloads_name}.key), 0, 0, 0`),
		renew: fill(`UPDATE {payloads} AS p SET due_at = {now} + ?2 FROM json_each(?3) AS r
			WHERE p.key = unhex({0}) AND p.owner = ?1 AND p.lease = CAST({1} AS INTEGER) RETURNING key`),
		held: fill(`SELECT p.key FROM json_each(?2) AS r JOIN {payloads} AS p
			ON p.key = unhex({0}) AND p.owner = ?1 AND p.lease = CAST({1} AS INTEGER)`),
		hold: fill(`UPDATE {ledger} SET processed_at = {stamp} WHERE key = ?1 AND processed_at IS NULL
			AND EXISTS (SELECT 1 FROM {payloads} WHERE key = ?1 AND owner = ?2 AND lease = ?3)`),
		stillHeld: fill(`SELECT EXISTS (SELECT 1 FROM {payloads} AS p JOIN {ledger} AS l ON l.key = p.key
			WHERE p.key = ?1 AND p.owner = ?2 AND p.lease = ?3 AND l.processed_at IS NOT NULL)`),
		finish: []string{
			fill(`DELETE FROM {payloads} WHERE seq IN (SELECT p.seq FROM json_each(?2) AS r JOIN {payloads} AS p
				ON p.key = unhex({0}) AND p.owner = ?1 AND p.lease = CAST({1} AS INTEGER)) RETURNING key`),
			fill(`UPDATE {ledger} SET processed_at = {stamp}
				WHERE key IN (SELECT unhex({0}) FROM json_each(?2) AS r WHERE ?1 IS NOT NULL) AND processed_at IS NULL
				AND NOT EXISTS (SELECT 1 FROM {payloads} AS p WHERE p.key = {ledger_name}.key)`),
		},
		published: fill(`DELETE FROM {outputs} WHERE key IN (SELECT unhex({0}) FROM json_each(?1) AS r)`),
		release: fill(`UPDATE {payloads} AS p SET owner = NULL,
				attempts = p.attempts - CASE WHEN {2} IN ('back', 'out') THEN 1 ELSE 0 END,
				due_at = CASE {2} WHEN 'retry' THEN {now} + CAST({3} AS INTEGER)
					WHEN 'back' THEN COALESCE((SELECT min({ms:l.received_at}, {now}) FROM {ledger} AS l WHERE l.key = p.key), {now}) END,
				dead_at = CASE WHEN {2} IN ('dead', 'out') THEN {now} END,
				last_error = COALESCE(NULLIF({4}, ''), p.last_error, CASE WHEN {2} <> 'back' THEN 'message was nacked' END)
			FROM json_each(?2) AS r
			WHERE p.key = unhex({0}) AND p.owner = ?1 AND p.lease = CAST({1} AS INTEGER) RETURNING key`),
		promote: fill(`UPDATE {payloads} SET due_at = {now} WHERE key IN (
				SELECT (SELECT p.key FROM {payloads} AS p WHERE p.lane = CAST({0} AS INTEGER) AND p.dead_at IS NULL
					ORDER BY p.seq LIMIT 1)
				FROM json_each(?1) AS r
				WHERE NOT EXISTS (SELECT 1 FROM {payloads} AS a WHERE a.lane = CAST({0} AS INTEGER) AND a.due_at IS NOT NULL))`),
		parkActive: fill(`UPDATE {payloads} SET due_at = NULL WHERE due_at IS NOT NULL AND owner IS NULL
			AND lane IN (SELECT CAST({0} AS INTEGER) FROM json_each(?1) AS r)`),
		takeMessage: fill(`UPDATE {payloads} SET owner = NULL, due_at = {now}
			WHERE key = ?1 AND lane IS NULL AND due_at <= {now}
			AND EXISTS (SELECT 1 FROM {ledger} AS l WHERE l.key = ?1 AND l.processed_at IS NULL)`),
		takeEvent: fill(`UPDATE {ledger} SET processed_at = {stamp} WHERE key = ?1 AND processed_at IS NULL
			AND (?2 OR NOT EXISTS (SELECT 1 FROM {payloads} WHERE key = ?1))`),
		forgetMessage: fill(`DELETE FROM {payloads} WHERE key = ?1`),

		countFailure: fill(`INSERT INTO {failures} (key, attempts, failed_at) VALUES (?1, 1, {now})
			ON CONFLICT (key) DO UPDATE SET attempts = attempts + 1, failed_at = excluded.failed_at RETURNING attempts`),
		countAttempt: fill(`INSERT INTO {failures} (key, attempts, failed_at)
			SELECT ?1, 1, {now} WHERE NOT EXISTS (SELECT 1 FROM {ledger} AS l LEFT JOIN {payloads} AS p ON p.key = l.key
				WHERE l.key = ?1 AND (l.processed_at IS NOT NULL OR p.dead_at IS NOT NULL OR p.owner IS NOT NULL AND p.due_at > {now}))
			ON CONFLICT (key) DO UPDATE SET attempts = attempts + 1, failed_at = excluded.failed_at RETURNING attempts`),
		uncount: []string{
			fill(`UPDATE {failures} SET attempts = attempts - 1 WHERE key = ?1`),
			fill(`DELETE FROM {failures} WHERE key = ?1 AND attempts < 1`),
		},
		forgetFailure: fill(`DELETE FROM {failures} WHERE key = ?1`),
		sweepFailures: fill(`DELETE FROM {failures} WHERE key IN (
				SELECT f.key FROM (SELECT key, failed_at FROM {failures} ORDER BY failed_at LIMIT 100) AS f
				LEFT JOIN {ledger} AS l ON l.key = f.key LEFT JOIN {payloads} AS p ON p.key = f.key
				WHERE l.processed_at IS NOT NULL OR p.dead_at IS NOT NULL OR f.failed_at < {now} - 30 * 86400000)`),
		buryEvent: fill(`INSERT INTO {ledger} (key, consumer, source, event_id, event_type) VALUES (?1, ?2, ?3, ?4, ?5)
			ON CONFLICT (key) DO NOTHING`),
		buryMessage: fill(`INSERT INTO {payloads} (key, queue, attempts, dead_at, last_error, message)
			SELECT key, ?2, ?3, {now}, ?4, ?5 FROM {ledger} WHERE key = ?1 AND processed_at IS NULL
			ON CONFLICT (key) DO UPDATE SET dead_at = {now}, due_at = NULL, owner = NULL, attempts = excluded.attempts,
				last_error = excluded.last_error
			WHERE lane IS NULL AND dead_at IS NULL AND (owner IS NULL OR due_at <= {now})`),
		isDead: fill(`SELECT EXISTS (SELECT 1 FROM {payloads} WHERE key = ?1 AND dead_at IS NOT NULL)`),
		lanesOf: fill(`SELECT DISTINCT p.lane FROM json_each(?1) AS r JOIN {payloads} AS p ON p.key = unhex({0})
			WHERE p.lane IS NOT NULL`),
		requeue: fill(`UPDATE {payloads} SET dead_at = NULL, attempts = 0, due_at = CASE WHEN lane IS NULL THEN {now} END
			WHERE key IN (SELECT unhex({0}) FROM json_each(?1) AS r) AND dead_at IS NOT NULL RETURNING key`),
		discard: []string{
			fill(`DELETE FROM {payloads} WHERE key IN (SELECT unhex({0}) FROM json_each(?1) AS r) AND dead_at IS NOT NULL
				RETURNING key`),
			fill(`UPDATE {ledger} SET processed_at = {stamp}
				WHERE key IN (SELECT unhex({0}) FROM json_each(?1) AS r) AND processed_at IS NULL
				AND NOT EXISTS (SELECT 1 FROM {payloads} AS p WHERE p.key = {ledger_name}.key)`),
		},
		listDead: fill(sqliteEntries + ` WHERE p.dead_at IS NOT NULL ORDER BY p.dead_at, p.seq LIMIT ?1`),
		listStale: fill(sqliteEntries + ` WHERE l.processed_at IS NULL AND p.dead_at IS NULL
			AND {ms:l.received_at} <= {now} - ?1 ORDER BY l.received_at LIMIT ?2`),
		stats: fill(`SELECT consumer, count(*) FILTER (WHERE state = 'received'), count(*) FILTER (WHERE state = 'leased'),
				count(*) FILTER (WHERE state = 'waiting'), count(*) FILTER (WHERE state = 'dead'),
				COALESCE(max({now} - received) FILTER (WHERE state <> 'dead'), 0)
			FROM (SELECT l.consumer, {ms:l.received_at} AS received, ` + sqliteState + ` AS state
				FROM {ledger} AS l LEFT JOIN {payloads} AS p ON p.key = l.key WHERE l.processed_at IS NULL
				UNION ALL SELECT l.consumer, {ms:l.received_at}, ` + sqliteState + `
				FROM {payloads} AS p JOIN {ledger} AS l ON p.key = l.key WHERE l.processed_at IS NOT NULL)
			GROUP BY consumer ORDER BY consumer`),

		createMigrations: fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
    version    INTEGER   PRIMARY KEY,
    applied_at TIMESTAMP NOT NULL DEFAULT (strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now'))
)`, t.migrations),
		listMigrations:  fmt.Sprintf(`SELECT version FROM %s`, t.migrations),
		recordMigration: fmt.Sprintf(`INSERT INTO %s (version) VALUES (%%d) ON CONFLICT (version) DO NOTHING`, t.migrations),
		probes: []string{
			fmt.Sprintf(`EXPLAIN INSERT INTO %s (key, received_at, processed_at, consumer, source, event_id, event_type)
				VALUES (x'', '', '', '', '', '', '') ON CONFLICT (key) DO NOTHING`, t.ledger),
			fmt.Sprintf(`EXPLAIN INSERT INTO %s (key, messages) VALUES (x'', x'') ON CONFLICT (key) DO NOTHING`, t.outputs),
			fill(`EXPLAIN INSERT INTO {payloads} (key, queue, lane, due_at, owner, lease, attempts, dead_at, last_error, message)
				VALUES (x'', x'', 1, 1, x'', 1, 1, 1, '', x'') ON CONFLICT (key) DO NOTHING`),
			fill(`EXPLAIN INSERT INTO {failures} (key, attempts, failed_at) VALUES (x'', 1, 1) ON CONFLICT (key) DO NOTHING`),
		},
	}
}

// sqliteShorthands are for what SQLite has no function for: the columns of a row r of a list, and times, of which "now" is
// the same everywhere in a statement. Before 3.42 it counts milliseconds only in text.
var sqliteShorthands = strings.NewReplacer(
	"{0}", "r.value->>0", "{1}", "r.value->>1", "{2}", "r.value->>2", "{3}", "r.value->>3", "{4}", "r.value->>4",
	"{now}", sqliteMilliseconds("'now'"),
	"{ms:l.received_at}", sqliteMilliseconds("l.received_at"),
	"{ms:l.processed_at}", sqliteMilliseconds("l.processed_at"),
	"{stamp}", "strftime('%Y-%m-%d %H:%M:%f', 'now')",
)

func sqliteMilliseconds(t string) string {
	return "(CAST(strftime('%s', " + t + ") AS INTEGER) * 1000 + CAST(substr(strftime('%f', " + t + "), 4) AS INTEGER))"
}

const (
	sqliteState = `CASE WHEN p.dead_at IS NOT NULL THEN 'dead' WHEN p.owner IS NOT NULL AND p.due_at > {now} THEN 'leased'
		WHEN p.attempts > 0 OR l.processed_at IS NOT NULL AND p.key IS NOT NULL THEN 'waiting'
		WHEN l.processed_at IS NOT NULL THEN 'processed' ELSE 'received' END`
	sqliteEntries = `SELECT l.key, l.consumer, l.source, l.event_id, l.event_type, ` + sqliteState + `,
			{ms:l.received_at}, {ms:l.processed_at}, COALESCE(p.attempts, 0), COALESCE(p.last_error, ''),
			CASE WHEN p.owner IS NULL THEN p.due_at END, p.dead_at, p.message
		FROM {ledger} AS l LEFT JOIN {payloads} AS p ON p.key = l.key`
)

// listArgs makes one JSON array of rows.
func (sqlite) listArgs(columns ...column) []any {
	rows := make([][]string, len(columns[0]))
	for i := range rows {
		for _, values := range columns {
			rows[i] = append(rows[i], values[i])
		}
	}

	encoded, _ := json.Marshal(rows) // strings cannot fail

	return []any{string(encoded)}
}

func (sqlite) oneWriter() bool { return true }

func (e sqlite) waitForLocks(ctx context.Context, tx *sql.Tx) error {
	_, err := e.limitLockWait(ctx, tx, 0)

	return err
}

func (sqlite) isolation() sql.IsolationLevel { return sql.LevelDefault }

// defaultBusyTimeout is what mattn/go-sqlite3 and Python's sqlite3 module use as well.
const defaultBusyTimeout = 5 * time.Second

// limitLockWait sets the connection's busy_timeout: to d for the claim alone when it is positive, else to
// defaultBusyTimeout for good where it is 0, since SQLite then fails at once instead of waiting for the other writer.
func (e sqlite) limitLockWait(ctx context.Context, tx *sql.Tx, d time.Duration) (func() error, error) {
	var milliseconds int64
	if err := tx.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&milliseconds); err != nil {
		return nil, err
	}

	before := time.Duration(milliseconds) * time.Millisecond
	if before == 0 {
		before = defaultBusyTimeout

		if err := e.setBusyTimeout(ctx, tx, before); err != nil {
			return nil, err
		}
	}

	if d == 0 {
		return func() error { return nil }, nil
	}

	return func() error { return e.setBusyTimeout(ctx, tx, before) }, e.setBusyTimeout(ctx, tx, d)
}

// inClaim reads the row back, which costs next to nothing in the same process.
func (e sqlite) inClaim(ctx context.Context, _ *sql.Conn, tx *sql.Tx, q queries, k Key) (open bool, err error) {
	err = tx.QueryRowContext(ctx, q.known, e.keyArg(k)).Scan(&open)

	return open, err
}

func (sqlite) setBusyTimeout(ctx context.Context, tx *sql.Tx, d time.Duration) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA busy_timeout = %d`, d.Milliseconds()))

	return err
}

// Primary result codes, https://www.sqlite.org/rescode.html.
const (
	sqliteGeneric    = 1
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteIOError    = 10
	sqliteFull       = 13
	sqliteCannotOpen = 14
)

// sqliteCode returns the primary result code, which is the low byte of an extended one, or 0.
func sqliteCode(err error) int {
	var coded interface{ Code() int }
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}

	return 0
}

func (sqlite) isTransient(err error) bool {
	code := sqliteCode(err)

	return code == sqliteBusy || code == sqliteLocked
}

func (sqlite) isOutage(err error) bool {
	code := sqliteCode(err)

	return code == sqliteIOError || code == sqliteFull || code == sqliteCannotOpen
}

func (e sqlite) isLockTimeout(err error) bool { return e.isTransient(err) }

// isMissingTable asks the database, because SQLite has no result code for it. A database whose newest migration is
// missing counts as well.
func (e sqlite) isMissingTable(ctx context.Context, db querier, t tables, err error) bool {
	if sqliteCode(err) != sqliteGeneric {
		return false
	}

	for _, t := range t.all() {
		if exists, err := e.exists(ctx, db, t); err == nil && !exists {
			return true
		}
	}

	return false
}

// lockMigrations has nothing to do: SQLite has one writer, and a transaction that cannot become it is run again.
func (sqlite) lockMigrations(context.Context, *sql.Tx) error { return nil }

func (sqlite) exists(ctx context.Context, db querier, t table) (exists bool, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s.sqlite_master
		WHERE type = 'table' AND name = ?1 COLLATE NOCASE)`, quote(t.schema)), t.name).Scan(&exists)

	return exists, err
}

// ensureSchema has nothing to do: a schema of SQLite's is an attached database.
func (sqlite) ensureSchema(context.Context, *sql.Tx, string) error { return nil }

func (sqlite) schemaDDL(string) string { return "" }
