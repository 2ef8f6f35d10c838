package stored_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// holdStores makes transactions that store events wait: on PostgreSQL in their COMMIT, on SQLite for the lock that every
// writer needs. awaitHeld returns when one is waiting.
func holdStores(t testing.TB, db *testdb.DB) (awaitHeld, release func()) {
	t.Helper()

	ctx := context.Background()
	conn, err := another(t, db).Conn(ctx)
	require.OK(t, err)
	t.Cleanup(func() { conn.Close() })

	exec := func(query string) {
		t.Helper()

		_, err := conn.ExecContext(ctx, query)
		require.OK(t, err)
	}

	if db.Engine.Dialect == inbox.SQLite {
		exec("BEGIN IMMEDIATE")

		return func() {
			require.Eventually(t, "a transaction waits for the lock", func() bool { return db.Stats().InUse > 0 })
		}, func() { exec("COMMIT") }
	}

	lock := rand.Int32()

	exec(fmt.Sprintf("SELECT pg_advisory_lock(42, %d)", lock))
	createTrigger(t, db, "hold", "CONSTRAINT TRIGGER %s AFTER INSERT ON "+db.Table("inbox")+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW",
		fmt.Sprintf("PERFORM pg_advisory_xact_lock_shared(42, %d);", lock))

	return func() {
		require.Eventually(t, "a COMMIT waits for the lock", func() bool {
			return db.Int(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 42 AND objid = $1 AND NOT granted",
				lock) > 0
		})
	}, func() { exec(fmt.Sprintf("SELECT pg_advisory_unlock(42, %d)", lock)) }
}

// createTrigger makes a trigger of PostgreSQL's, by its declaration up to EXECUTE and the statements of its function.
func createTrigger(t testing.TB, db *testdb.DB, name, declaration, body string) {
	t.Helper()

	function := db.Table(name + "_function")
	db.Exec(t, "CREATE FUNCTION "+function+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+body+" RETURN NEW; END $$")
	db.Exec(t, fmt.Sprintf("CREATE "+declaration, name)+" EXECUTE FUNCTION "+function+"()")
}

// failCommits has the database refuse transactions that store events in their COMMIT, when they come from the pool that it
// returns.
func failCommits(t testing.TB, db *testdb.DB) (failing *testdb.DB, stop func()) {
	t.Helper()

	if db.Engine.Dialect == inbox.SQLite {
		strict := *db
		strict.DSN += "&_pragma=foreign_keys(1)"
		db.Exec(t, "CREATE TABLE parents (id INTEGER PRIMARY KEY)")
		db.Exec(t, "CREATE TABLE orphans (id INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
		db.Exec(t, "CREATE TRIGGER fail AFTER INSERT ON inbox BEGIN INSERT INTO orphans VALUES (1); END")

		return another(t, &strict), func() { db.Exec(t, "DROP TRIGGER fail") }
	}

	createTrigger(t, db, "fail", "CONSTRAINT TRIGGER %s AFTER INSERT ON "+db.Table("inbox")+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW",
		"RAISE EXCEPTION 'commit refused';")

	return db, func() { db.Exec(t, "DROP TRIGGER fail ON "+db.Table("inbox")) }
}

// refuseUpdates has the database refuse changes to stored messages that meet a condition on OLD and NEW.
func refuseUpdates(t testing.TB, db *testdb.DB, condition string) (stop func()) {
	t.Helper()

	if db.Engine.Dialect == inbox.SQLite {
		db.Exec(t, "CREATE TRIGGER refuse BEFORE UPDATE ON inbox_payloads WHEN "+condition+" BEGIN SELECT RAISE(ABORT, 'update refused'); END")

		return func() { db.Exec(t, "DROP TRIGGER refuse") }
	}

	createTrigger(t, db, "refuse", "TRIGGER %s BEFORE UPDATE ON "+db.Table("inbox_payloads")+" FOR EACH ROW",
		"IF "+condition+" THEN RAISE EXCEPTION 'update refused'; END IF;")

	return func() { db.Exec(t, "DROP TRIGGER refuse ON "+db.Table("inbox_payloads")) }
}
