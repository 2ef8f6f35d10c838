package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

type postgres struct{}

func (postgres) name() string          { return "postgres" }
func (postgres) bindDriver() string    { return "postgres" }
func (postgres) defaultSchema() string { return "public" }
func (postgres) keyArg(k Key) any      { return k.String() }

func (postgres) supports(level sql.IsolationLevel) bool {
	switch level {
	case sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
		return true
	default:
		return false
	}
}

func (postgres) queries(t tables, lockWait time.Duration) queries {
	fill := func(text string) string { return t.fill(postgresShorthands.Replace(text)) }

	// fenced is true of messages that are in a list with the number of their lease, and the owner's.
	fenced := func(keys, leases string) string {
		return fmt.Sprintf(`p.key = ANY(%[1]s::uuid[]) AND p.owner = $1 AND (
			(p.key, p.lease) IN (SELECT f.key, f.lease FROM unnest(%[1]s::uuid[], %[2]s::bigint[]) AS f (key, lease))) IS TRUE`, keys, leases)
	}

	return queries{
		claim: postgresClaim(t.ledger, lockWait),
		storeOutputs: fmt.Sprintf(`INSERT INTO %s AS o (key, messages) SELECT l.key, $2::bytea FROM %s AS l WHERE l.key = $1
			ON CONFLICT (key) DO UPDATE SET messages = excluded.messages`, t.outputs, t.ledger),
		known:        fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s WHERE key = $1 AND processed_at IS NOT NULL)`, t.ledger),
		loadOutputs:  fmt.Sprintf(`SELECT messages FROM %s WHERE key = $1`, t.outputs),
		forget:       fmt.Sprintf(`DELETE FROM %s WHERE key = $1`, t.ledger),
		forgetOutput: fmt.Sprintf(`DELETE FROM %s WHERE key = $1`, t.outputs),

		// The planner goes by statistics, which a queue outruns: what was planned for a table that was empty, or had few
		// messages due, would read or sort a whole backlog each time. Where it thinks that one message is left it joins by
		// reading a whole index, too. So statements that run in batches look rows up by ANY of an array, or by a subquery that
		// yields a value, and have neither EXISTS, which is a join, nor joins that could do without such an ANY.
		planLookups: `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
			set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true),
			set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)`,
		// What is on record already is left out, because ON CONFLICT would wait for whoever is processing it.
		storeEvents: fill(`WITH new AS (
				INSERT INTO {ledger} (key, consumer, source, event_id, event_type)
				SELECT r.key, $1::text, COALESCE(r.source, ''), r.id, COALESCE(r.type, '')
				FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS r (key, source, id, type)
				WHERE (SELECT true FROM {ledger} AS l WHERE l.key = r.key) IS NULL
				ON CONFLICT (key) DO NOTHING RETURNING key
			)
			SELECT {keys} FROM new`),
		strays: fill(`WITH strays AS (
				SELECT l.key FROM {ledger} AS l
				WHERE l.key = ANY($1::uuid[]) AND (SELECT true FROM {payloads} AS p WHERE p.key = l.key) IS NULL
				AND (l.processed_at IS NULL OR (SELECT true FROM {outputs} AS o WHERE o.key = l.key))
			)
			SELECT {keys} FROM strays`),
		storeMessages: fill(`INSERT INTO {payloads} (key, queue, lane, due_at, owner, lease, attempts, message)
			SELECT r.key, $1::uuid, NULLIF(r.lane, '')::bigint,
				CASE WHEN r.lease <> '' THEN now() + $3::bigint * interval '1 ms' WHEN COALESCE(r.lane, '') = '' THEN now() END,
				CASE WHEN r.lease <> '' THEN $2::uuid END, NULLIF(r.lease, '')::bigint,
				CASE WHEN r.lease <> '' THEN 1 ELSE 0 END, substring($4::bytea FROM r.start FOR r.size)
			FROM unnest($5::uuid[], $6::text[], $7::text[], $8::int[], $9::int[])
				WITH ORDINALITY AS r (key, lane, lease, start, size, n)
			ORDER BY r.n ON CONFLICT (key) DO NOTHING`),
		// MATERIALIZED, because a subquery that is run twice locks twice as many.
		lease: fill(`WITH due AS MATERIALIZED (
				SELECT key, due_at, seq FROM {payloads} WHERE queue = $1 AND due_at <= now()
				AND (due_at, seq) > (timestamptz 'epoch' + $6::bigint * interval '1 microsecond', $7::bigint)
				ORDER BY due_at, seq LIMIT $5 FOR UPDATE SKIP LOCKED
			)
			UPDATE {payloads} AS p SET owner = $2, lease = $4, attempts = p.attempts + 1,
				due_at = now() + $3::bigint * interval '1 ms'
			WHERE p.key = ANY(ARRAY(SELECT key FROM due))
			RETURNING p.key, p.seq, p.attempts, COALESCE(p.lane, 0), p.message,
				COALESCE((SELECT l.processed_at IS NOT NULL FROM {ledger} AS l WHERE l.key = p.key), false),
				COALESCE((SELECT true FROM {outputs} AS o WHERE o.key = p.key), false),
				(SELECT (extract(epoch FROM due_at) * 1000000)::bigint FROM due ORDER BY due_at DESC, seq DESC LIMIT 1),
				(SELECT seq FROM due ORDER BY due_at DESC, seq DESC LIMIT 1),
				{clock}`),
		clock: fill(`SELECT {clock}`),
		// What is locked is in the hands of a transaction of its owner's, and nobody else can lease it meanwhile.
		renew: fill(`WITH mine AS MATERIALIZED (
				SELECT p.key FROM {payloads} AS p WHERE ` + fenced("$3", "$4") + ` FOR UPDATE SKIP LOCKED
			), renewed AS (
				UPDATE {payloads} AS p SET due_at = now() + $2::bigint * interval '1 ms'
				WHERE p.key = ANY(ARRAY(SELECT key FROM mine)) RETURNING p.key
			)
			SELECT {keys} FROM renewed`),
		held: fill(`WITH held AS (
				SELECT p.key FROM {payloads} AS p WHERE ` + fenced("$2", "$3") + `
			)
			SELECT {keys} FROM held`),
		hold: fill(`WITH mine AS MATERIALIZED (
				SELECT key FROM {payloads} WHERE key = $1 AND owner = $2 AND lease = $3 FOR UPDATE
			)
			UPDATE {ledger} SET processed_at = now() WHERE key = (SELECT key FROM mine) AND {unprocessed}`),
		stillHeld: fill(`SELECT EXISTS (SELECT FROM {payloads} AS p JOIN {ledger} AS l ON l.key = p.key
			WHERE p.key = $1 AND p.owner = $2 AND p.lease = $3 AND l.processed_at IS NOT NULL)`),
		finish: []string{fill(`WITH gone AS (
				DELETE FROM {payloads} AS p WHERE ` + fenced("$2", "$3") + ` RETURNING p.key
			), processed AS (
				UPDATE {ledger} SET processed_at = now() WHERE key = ANY(ARRAY(SELECT key FROM gone)) AND {unprocessed}
			)
			SELECT {keys} FROM gone`)},
		published: fill(`DELETE FROM {outputs} WHERE key = ANY($1::uuid[])`),
		release: fill(`WITH released AS (
				UPDATE {payloads} AS p SET owner = NULL,
					attempts = p.attempts - CASE WHEN f.fate IN ('back', 'out') THEN 1 ELSE 0 END,
					due_at = CASE f.fate WHEN 'retry' THEN now() + f.delay * interval '1 ms'
						WHEN 'back' THEN LEAST(now(), (SELECT l.received_at FROM {ledger} AS l WHERE l.key = p.key)) END,
					dead_at = CASE WHEN f.fate IN ('dead', 'out') THEN now() END,
					last_error = COALESCE(NULLIF(f.error, ''), p.last_error, CASE WHEN f.fate <> 'back' THEN 'message was nacked' END)
				FROM (SELECT r.key, r.lease, r.delay, r.error,
						CASE WHEN (SELECT l.processed_at IS NOT NULL FROM {ledger} AS l WHERE l.key = r.key)
							THEN 'retry' ELSE r.fate END AS fate
					FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::text[]) AS r (key, lease, fate, delay, error)) AS f
				WHERE p.key = ANY($2::uuid[]) AND p.key = f.key AND p.owner = $1 AND p.lease = f.lease RETURNING p.key
			)
			SELECT {keys} FROM released`),
		// The first number is arbitrary: the first bytes of SHA-256("watermill-inbox lanes").
		lockLanes: `SELECT count(pg_advisory_xact_lock(913975187, l.lock)) FROM unnest($1::int[]) AS l (lock)`,
		promote: fill(`UPDATE {payloads} SET due_at = now() WHERE key = ANY(ARRAY(
				SELECT (SELECT p.key FROM {payloads} AS p WHERE p.lane = l.lane AND p.dead_at IS NULL ORDER BY p.seq LIMIT 1)
				FROM unnest($1::bigint[]) AS l (lane)
				WHERE (SELECT true FROM {payloads} AS a WHERE a.lane = l.lane AND a.due_at IS NOT NULL) IS NULL))`),
		parkActive: fill(`UPDATE {payloads} SET due_at = NULL
			WHERE lane = ANY($1::bigint[]) AND due_at IS NOT NULL AND owner IS NULL`),
		takeMessage: fill(`UPDATE {payloads} SET owner = NULL, due_at = now() WHERE key = (
				SELECT p.key FROM {payloads} AS p JOIN {ledger} AS l ON l.key = p.key
				WHERE p.key = $1 AND l.processed_at IS NULL AND p.lane IS NULL AND p.due_at <= now() FOR UPDATE OF p SKIP LOCKED)`),
		takeEvent: fill(`UPDATE {ledger} SET processed_at = now() WHERE key = $1 AND {unprocessed}
			AND ($2::boolean OR NOT EXISTS (SELECT FROM {payloads} WHERE key = $1))`),
		forgetMessage: fill(`DELETE FROM {payloads} WHERE key = $1`),

		countFailure: fill(`INSERT INTO {failures} AS f (key, attempts) VALUES ($1, 1)
			ON CONFLICT (key) DO UPDATE SET attempts = f.attempts + 1, failed_at = now() RETURNING attempts`),
		countAttempt: fill(`INSERT INTO {failures} AS f (key, attempts)
			SELECT $1::uuid, 1 WHERE NOT EXISTS (SELECT FROM {ledger} AS l LEFT JOIN {payloads} AS p ON p.key = l.key
				WHERE l.key = $1 AND (l.processed_at IS NOT NULL OR p.dead_at IS NOT NULL OR p.owner IS NOT NULL AND p.due_at > now()))
			ON CONFLICT (key) DO UPDATE SET attempts = f.attempts + 1, failed_at = now() RETURNING attempts`),
		uncount: []string{
			fill(`UPDATE {failures} SET attempts = attempts - 1 WHERE key = $1`),
			fill(`DELETE FROM {failures} WHERE key = $1 AND attempts < 1`),
		},
		forgetFailure: fill(`DELETE FROM {failures} WHERE key = $1`),
		sweepFailures: fill(`DELETE FROM {failures} WHERE key IN (
				SELECT f.key FROM (SELECT key, failed_at FROM {failures} ORDER BY failed_at LIMIT 100 FOR UPDATE SKIP LOCKED) AS f
				LEFT JOIN {ledger} AS l ON l.key = f.key LEFT JOIN {payloads} AS p ON p.key = f.key
				WHERE l.processed_at IS NOT NULL OR p.dead_at IS NOT NULL OR f.failed_at < now() - interval '30 days')`),
		buryEvent: fill(`INSERT INTO {ledger} (key, consumer, source, event_id, event_type) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (key) DO NOTHING`),
		buryMessage: fill(`INSERT INTO {payloads} AS p (key, queue, attempts, dead_at, last_error, message)
			SELECT l.key, $2::uuid, $3::int, now(), $4::text, $5::bytea FROM {ledger} AS l WHERE l.key = $1 AND l.processed_at IS NULL
			ON CONFLICT (key) DO UPDATE SET dead_at = now(), due_at = NULL, owner = NULL, attempts = excluded.attempts,
				last_error = excluded.last_error
			WHERE p.lane IS NULL AND p.dead_at IS NULL AND (p.owner IS NULL OR p.due_at <= now())`),
		isDead:  fill(`SELECT EXISTS (SELECT FROM {payloads} WHERE key = $1 AND dead_at IS NOT NULL)`),
		lanesOf: fill(`SELECT DISTINCT lane FROM {payloads} WHERE key = ANY($1::uuid[]) AND lane IS NOT NULL`),
		requeue: fill(`WITH requeued AS (
				UPDATE {payloads} SET dead_at = NULL, attempts = 0, due_at = CASE WHEN lane IS NULL THEN now() END
				WHERE key = ANY($1::uuid[]) AND {is_dead} RETURNING key
			)
			SELECT {keys} FROM requeued`),
		discard: []string{fill(`WITH gone AS (
				DELETE FROM {payloads} WHERE key = ANY($1::uuid[]) AND {is_dead} RETURNING key
			), processed AS (
				UPDATE {ledger} SET processed_at = now() WHERE key = ANY(ARRAY(SELECT key FROM gone)) AND {unprocessed}
			)
			SELECT {keys} FROM gone`)},
		listDead: fill(postgresEntries + ` WHERE p.dead_at IS NOT NULL ORDER BY p.dead_at, p.seq LIMIT $1`),
		listStale: fill(postgresEntries + ` WHERE l.processed_at IS NULL AND p.dead_at IS NULL
			AND l.received_at <= now() - $1::bigint * interval '1 ms' ORDER BY l.received_at LIMIT $2`),
		stats: fill(`SELECT e.consumer, count(*) FILTER (WHERE e.state = 'received'), count(*) FILTER (WHERE e.state = 'leased'),
				count(*) FILTER (WHERE e.state = 'waiting'), count(*) FILTER (WHERE e.state = 'dead'),
				COALESCE(max((extract(epoch FROM now() - e.received_at) * 1000)::bigint) FILTER (WHERE e.state <> 'dead'), 0)
			FROM (SELECT l.consumer, l.received_at, ` + postgresState + ` AS state
				FROM {ledger} AS l LEFT JOIN {payloads} AS p ON p.key = l.key WHERE l.processed_at IS NULL
				UNION ALL SELECT l.consumer, l.received_at, ` + postgresState + `
				FROM {payloads} AS p JOIN {ledger} AS l ON p.key = l.key WHERE l.processed_at IS NOT NULL) AS e
			GROUP BY e.consumer ORDER BY e.consumer`),
		createMigrations: fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
    version    integer     PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)`, t.migrations),
		listMigrations:  fmt.Sprintf(`SELECT version FROM %s`, t.migrations),
		recordMigration: fmt.Sprintf(`INSERT INTO %s (version) VALUES (%%d) ON CONFLICT (version) DO NOTHING`, t.migrations),
		probes: []string{
			fmt.Sprintf(`EXPLAIN INSERT INTO %s (key, received_at, processed_at, consumer, source, event_id, event_type)
				SELECT NULL::uuid, now(), now(), '', '', '', '' ON CONFLICT (key) DO NOTHING`, t.ledger),
			fmt.Sprintf(`EXPLAIN INSERT INTO %s (key, messages) SELECT NULL::uuid, ''::bytea ON CONFLICT (key) DO NOTHING`, t.outputs),
			fill(`EXPLAIN INSERT INTO {payloads} (key, queue, lane, due_at, owner, lease, attempts, dead_at, last_error, message)
				SELECT NULL::uuid, NULL::uuid, 1, now(), NULL::uuid, 1, 1, now(), '', ''::bytea ON CONFLICT (key) DO NOTHING`),
			fill(`EXPLAIN INSERT INTO {failures} (key, attempts, failed_at) SELECT NULL::uuid, 1, now() ON CONFLICT (key) DO NOTHING`),
		},
	}
}

// postgresShorthands are for keys that come back in one value, because drivers take their time over rows, for the time of the
// transaction, and for conditions in a form that keeps the planner from reading the whole of a partial index.
var postgresShorthands = strings.NewReplacer(
	"{keys}", "string_agg(uuid_send(key), '')",
	"{clock}", "(extract(epoch FROM now()) * 1000000)::bigint",
	"{unprocessed}", "COALESCE(processed_at, 'infinity') = 'infinity'",
	"{is_dead}", "COALESCE(dead_at, 'infinity') < 'infinity'",
)

const (
	postgresState = `CASE WHEN p.dead_at IS NOT NULL THEN 'dead' WHEN p.owner IS NOT NULL AND p.due_at > now() THEN 'leased'
		WHEN p.attempts > 0 OR l.processed_at IS NOT NULL AND p.key IS NOT NULL THEN 'waiting'
		WHEN l.processed_at IS NOT NULL THEN 'processed' ELSE 'received' END`
	postgresEntries = `SELECT l.key, l.consumer, l.source, l.event_id, l.event_type, ` + postgresState + `,
			(extract(epoch FROM l.received_at) * 1000)::bigint, (extract(epoch FROM l.processed_at) * 1000)::bigint,
			COALESCE(p.attempts, 0), COALESCE(p.last_error, ''),
			(extract(epoch FROM CASE WHEN p.owner IS NULL THEN p.due_at END) * 1000)::bigint,
			(extract(epoch FROM p.dead_at) * 1000)::bigint, p.message
		FROM {ledger} AS l LEFT JOIN {payloads} AS p ON p.key = l.key`
)

// listArgs makes an array literal of each column: unlike drivers' own arrays, every driver sends text alike. A column of
// empty strings alone is sent empty, for which unnest yields NULLs.
func (postgres) listArgs(columns ...column) []any {
	args := make([]any, len(columns))

	for i, values := range columns {
		size, empty := len("{}"), true
		for _, value := range values {
			size += len(value) + len(`"",`)
			empty = empty && value == ""
		}

		if empty {
			args[i] = "{}"

			continue
		}

		b := append(make([]byte, 0, size), '{')

		for j, value := range values {
			if j > 0 {
				b = append(b, ',')
			}

			b = appendArrayElement(b, value)
		}

		args[i] = string(append(b, '}'))
	}

	return args
}

// https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
func appendArrayElement(b []byte, value string) []byte {
	b = append(b, '"')

	for i := range len(value) {
		if value[i] == '"' || value[i] == '\\' {
			b = append(b, '\\')
		}

		b = append(b, value[i])
	}

	return append(b, '"')
}

func (postgres) oneWriter() bool { return false }

func (postgres) waitForLocks(context.Context, *sql.Tx) error { return nil }

func (postgres) isolation() sql.IsolationLevel { return sql.LevelReadCommitted }

// postgresClaim returns the one statement that a fresh event costs. A conflicting row that is not committed yet makes it
// wait; a committed one makes it do nothing, without a transaction id being assigned.
//
// With a lock timeout, the setting is changed before the row is written (the INSERT reads from the CTE) and put back by
// RETURNING after it, in the same round trip. When there is nothing to return the transaction ends, and with it
// the setting.
func postgresClaim(ledger table, lockWait time.Duration) string {
	const columns = "key, consumer, source, event_id, event_type, processed_at"

	if lockWait == 0 {
		return fmt.Sprintf(`INSERT INTO %s (%s) VALUES ($1, $2, $3, $4, $5, now()) ON CONFLICT (key) DO NOTHING`, ledger, columns)
	}

	return fmt.Sprintf(`WITH before AS MATERIALIZED (
			SELECT current_setting('lock_timeout') AS setting
		), limited AS MATERIALIZED (
			SELECT setting, set_config('lock_timeout', '%dms', true) FROM before
		)
		INSERT INTO %s (%s) SELECT $1::uuid, $2::text, $3::text, $4::text, $5::text, now() FROM limited
		ON CONFLICT (key) DO NOTHING
		RETURNING set_config('lock_timeout', (SELECT setting FROM limited), true)`,
		lockWait.Milliseconds(), ledger, columns)
}

func (postgres) limitLockWait(context.Context, *sql.Tx, time.Duration) (func() error, error) {
	return func() error { return nil }, nil
}

// inClaim asks the driver's connection for the transaction status that came with the server's last answer. lib/pq looks at
// it by itself in Commit; pgx does not, and takes the warning that a COMMIT outside of a transaction gets for success.
// Where neither is to be seen, as behind a driver that wraps another for tracing, the row is read back.
func (e postgres) inClaim(ctx context.Context, conn *sql.Conn, tx *sql.Tx, q queries, k Key) (open bool, err error) {
	var known bool

	err = conn.Raw(func(driverConn any) error {
		open, known = postgresTxOpen(driverConn)

		return nil
	})
	if err == nil && !known {
		err = tx.QueryRowContext(ctx, q.known, e.keyArg(k)).Scan(&open)
	}

	return open, err
}

// postgresTxOpen reports whether the connection of a driver that it knows is in a transaction, without depending on the
// driver. On lib/pq it always is, as far as anybody needs to know before Commit.
func postgresTxOpen(driverConn any) (open, known bool) {
	v := reflect.ValueOf(driverConn)
	if reflect.Indirect(v).Type().PkgPath() == "github.com/lib/pq" {
		return true, true
	}

	for _, name := range []string{"Conn", "PgConn", "TxStatus"} { // of pgx
		method := v.MethodByName(name)
		if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
			return false, false
		}

		v = method.Call(nil)[0]
	}

	status, known := v.Interface().(byte)

	return status != 'I', known // I is idle
}

// SQLSTATE codes, https://www.postgresql.org/docs/current/errcodes-appendix.html.
const (
	postgresSerializationFailure = "40001"
	postgresDeadlockDetected     = "40P01"
	postgresLockNotAvailable     = "55P03"
	postgresQueryCanceled        = "57014"
	postgresUndefinedTable       = "42P01"
	postgresUndefinedColumn      = "42703"
	postgresInvalidSchemaName    = "3F000"
)

func (postgres) isTransient(err error) bool {
	state := sqlState(err)

	return state == postgresSerializationFailure || state == postgresDeadlockDetected
}

// isOutage goes by the class of the SQLSTATE: connection exception, insufficient resources, operator intervention (as at a
// shutdown), system error.
func (postgres) isOutage(err error) bool {
	state := sqlState(err)

	return len(state) == 5 && state != postgresQueryCanceled && slices.Contains([]string{"08", "53", "57", "58"}, state[:2])
}

func (postgres) isLockTimeout(err error) bool {
	return sqlState(err) == postgresLockNotAvailable
}

func (postgres) isMissingTable(_ context.Context, _ querier, _ tables, err error) bool {
	switch sqlState(err) {
	case postgresUndefinedTable, postgresUndefinedColumn, postgresInvalidSchemaName:
		return true
	default:
		return false
	}
}

// lockMigrations takes one lock for every inbox of the database, since two of them may create the same schema. The
// number is arbitrary: the first bytes of SHA-256("watermill-inbox migrations").
func (postgres) lockMigrations(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(6298859078355778429)`)

	return err
}

func (postgres) exists(ctx context.Context, db querier, t table) (exists bool, err error) {
	err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c
		JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2)`, t.schema, t.name).Scan(&exists)

	return exists, err
}

// ensureSchema looks first, because CREATE SCHEMA IF NOT EXISTS needs the privilege even where there is nothing to do.
func (e postgres) ensureSchema(ctx context.Context, tx *sql.Tx, schema string) error {
	var exists bool

	err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)`, schema).Scan(&exists)
	if err != nil || exists {
		return err
	}

	_, err = tx.ExecContext(ctx, e.schemaDDL(schema))

	return err
}

func (e postgres) schemaDDL(schema string) string {
	if schema == e.defaultSchema() {
		return ""
	}

	return "CREATE SCHEMA IF NOT EXISTS " + quote(schema)
}
