package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
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
	return queries{
		claim: postgresClaim(t.ledger, lockWait),
		storeOutputs: fmt.Sprintf(`INSERT INTO %s AS o (key, messages) SELECT l.key, $2::bytea FROM %s AS l WHERE l.key = $1
			ON CONFLICT (key) DO UPDATE SET messages = excluded.messages`, t.outputs, t.ledger),
		known:        fmt.Sprintf(`SELECT EXISTS (SELECT 1 FROM %s WHERE key = $1 AND processed_at IS NOT NULL)`, t.ledger),
		loadOutputs:  fmt.Sprintf(`SELECT messages FROM %s WHERE key = $1`, t.outputs),
		forget:       fmt.Sprintf(`DELETE FROM %s WHERE key = $1`, t.ledger),
		forgetOutput: fmt.Sprintf(`DELETE FROM %s WHERE key = $1`, t.outputs),

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
		},
	}
}

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
	postgresUndefinedTable       = "42P01"
	postgresUndefinedColumn      = "42703"
	postgresInvalidSchemaName    = "3F000"
)

func (postgres) isTransient(err error) bool {
	state := sqlState(err)

	return state == postgresSerializationFailure || state == postgresDeadlockDetected
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
