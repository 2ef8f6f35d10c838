package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// newBare returns an inbox whose tables may be missing.
func newBare(t testing.TB, db *testdb.DB, opts ...inbox.Option) *inbox.Inbox {
	t.Helper()

	ib, err := inbox.New(db.DB, db.Engine.Dialect, append([]inbox.Option{inbox.WithTable(db.Inbox()), consumer(billing)}, opts...)...)
	require.OK(t, err)

	return ib
}

// requireWorks handles an event and its duplicate, with outputs.
func requireWorks(t testing.TB, db *testdb.DB, ib *inbox.Inbox, id string) {
	t.Helper()

	w := returning(db, delivery("output of "+id))

	for range 3 {
		outputs, err := deliver(ib, w.handle, delivery(id))
		require.OK(t, err)
		require.Equal(t, "outputs", uuids(outputs), []string{"output of " + id})
	}

	w.requireRuns(t, 1)
}

// tables lists the inbox's tables and indexes.
func tables(t testing.TB, db *testdb.DB) (names []string) {
	t.Helper()

	query := "SELECT c.relname FROM pg_class c WHERE c.relnamespace = $1::regnamespace AND c.relname <> 'effects' ORDER BY 1"
	if db.Engine.Dialect == inbox.SQLite {
		query = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name <> 'effects' AND $1 <> '' ORDER BY 1"
	}

	rows, err := db.QueryContext(context.Background(), query, db.Schema)
	require.OK(t, err)
	defer rows.Close()

	for rows.Next() {
		var name string

		require.OK(t, rows.Scan(&name))
		names = append(names, name)
	}

	require.OK(t, rows.Err())

	return names
}

func TestMigrate(t *testing.T) {
	t.Parallel()

	for name, opts := range map[string][]inbox.Option{"prepared": nil, "unprepared": {inbox.WithoutPreparedStatements()}} {
		forEachEngine(t, "missing tables are ErrNotMigrated until the same inbox migrates, "+name, func(t *testing.T, db *testdb.DB) {
			ib, w := newBare(t, db, opts...), newWorker(db)

			for range 2 {
				_, err := deliver(ib, w.handle, delivery("e1"))
				require.ErrorIs(t, err, inbox.ErrNotMigrated)
				require.ErrorNames(t, err, "Migrate")
			}

			w.requireRuns(t, 0)
			requireIdle(t, db)
			require.OK(t, ib.Migrate(t.Context()))
			requireWorks(t, db, ib, "e1")
		})

		forEachEngine(t, "tables of an older version are ErrNotMigrated and are brought up to date, "+name, func(t *testing.T, db *testdb.DB) {
			ib := newInbox(t, db, opts...)
			requireWorks(t, db, ib, "e0")

			// Version 1 had no outputs.
			db.Exec(t, "DROP TABLE "+db.Table("inbox_outputs"))
			db.Exec(t, "DELETE FROM "+db.Table("inbox_migrations")+" WHERE version > 1")

			outdated := newBare(t, db, opts...)
			db.SetMaxOpenConns(1) // what went wrong must be found out on the connection at hand

			for _, id := range []string{"e0", "e1"} { // a duplicate, and a fresh event with outputs
				_, err := deliver(outdated, returning(db, delivery("o1")).handle, delivery(id))
				require.ErrorIs(t, err, inbox.ErrNotMigrated)
			}

			db.SetMaxOpenConns(0)
			require.OK(t, outdated.Migrate(t.Context()))
			requireWorks(t, db, outdated, "e1")
			requireRecorded(t, db, 2) // what was recorded before is kept
		})
	}

	for _, dropped := range []string{"inbox", "inbox_outputs", "inbox_migrations"} {
		forEachEngine(t, "makes "+dropped+" again after it was dropped", func(t *testing.T, db *testdb.DB) {
			ib := newInbox(t, db)
			db.Exec(t, "DROP TABLE "+db.Table(dropped))
			require.OK(t, ib.Migrate(t.Context()))
			requireWorks(t, db, ib, "e1")
		})
	}

	forEachEngine(t, "again changes nothing", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)
		requireWorks(t, db, ib, "e1")

		before := tables(t, db)

		for range 3 {
			require.OK(t, ib.Migrate(t.Context()))
			require.OK(t, newBare(t, db).Migrate(t.Context()))
		}

		require.Equal(t, "tables", tables(t, db), before)
		requireRecorded(t, db, 1)
		requireStoredOutputs(t, db, 1)
	})

	forEachEngine(t, "by eight callers at once works for all", func(t *testing.T, db *testdb.DB) {
		var (
			callers sync.WaitGroup
			errs    [8]error
		)

		for i := range errs {
			ib := newBare(t, db)

			callers.Go(func() { errs[i] = ib.Migrate(t.Context()) })
		}

		callers.Wait()
		require.OK(t, errors.Join(errs[:]...))
		requireWorks(t, db, newBare(t, db), "e1")
	})

	forEachPostgres(t, "creates the schema, by eight callers at once", func(t *testing.T, db *testdb.DB) {
		schema := db.Schema + "_New"
		t.Cleanup(func() { db.Exec(t, `DROP SCHEMA "`+schema+`" CASCADE`) })

		var (
			callers sync.WaitGroup
			errs    [8]error
		)

		for i := range errs {
			ib := newBare(t, db, inbox.WithTable(fmt.Sprintf("%s.Inbox%d", schema, i)))

			callers.Go(func() { errs[i] = ib.Migrate(t.Context()) })
		}

		callers.Wait()
		require.OK(t, errors.Join(errs[:]...))

		ib := newBare(t, db, inbox.WithTable(schema+".Inbox0"))
		requireWorks(t, db, ib, "e1")
		require.Equal(t, "events", db.Int(t, `SELECT count(*) FROM "`+schema+`"."Inbox0"`), 1)
	})

	forEachPostgres(t, "needs no privilege to create when there is nothing to do", func(t *testing.T, db *testdb.DB) {
		newInbox(t, db)

		role := db.Schema + "_role"
		db.Exec(t, "CREATE ROLE "+role+" LOGIN")
		t.Cleanup(func() {
			db.Exec(t, "DROP OWNED BY "+role)
			db.Exec(t, "DROP ROLE "+role)
		})
		db.Exec(t, "GRANT USAGE ON SCHEMA "+db.Schema+" TO "+role)
		db.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+db.Schema+" TO "+role)

		dsn, err := url.Parse(db.DSN)
		require.OK(t, err)

		dsn.User = url.User(role)
		limited := reopen(t, db, dsn.String())

		_, err = limited.ExecContext(t.Context(), "CREATE TABLE "+db.Table("forbidden")+" ()")
		require.Equal(t, "SQLSTATE of CREATE TABLE", sqlState(err), "42501")

		ib := newBare(t, limited)
		require.OK(t, ib.Migrate(t.Context()))
		requireWorks(t, limited, ib, "e1")

		err = newBare(t, limited, inbox.WithTable(db.Schema+".other")).Migrate(t.Context())
		require.Equal(t, "SQLSTATE when there is something to do", sqlState(err), "42501")
	})

	for name, columns := range map[string]string{
		"other columns": "id integer PRIMARY KEY, name text",
		"no key": "key text, received_at text, processed_at text, consumer text NOT NULL, source text NOT NULL, " +
			"event_id text NOT NULL, event_type text NOT NULL",
	} {
		forEachEngine(t, "refuses a table of that name that is not an inbox's, with "+name, func(t *testing.T, db *testdb.DB) {
			db.Exec(t, "CREATE TABLE "+db.Table("inbox")+" ("+columns+")")

			before := tables(t, db)

			if err := newBare(t, db).Migrate(t.Context()); err == nil {
				t.Fatal("migrated")
			}

			require.Equal(t, "tables", tables(t, db), before)
		})
	}

	forEachEngine(t, "ends with its context", func(t *testing.T, db *testdb.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, newBare(t, db).Migrate(ctx), context.Canceled)
		require.Equal(t, "tables", len(tables(t, db)), 0)
	})
}

func TestSchema(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "applied by hand is what Migrate makes", func(t *testing.T, db *testdb.DB) {
		ddl, err := inbox.Schema(db.Engine.Dialect, inbox.WithTable(db.Inbox()))
		require.OK(t, err)

		for range 2 { // can be run again
			db.Exec(t, ddl)
		}

		byHand := tables(t, db)
		ib := newBare(t, db)
		requireWorks(t, db, ib, "e1")
		require.OK(t, ib.Migrate(t.Context()))
		require.Equal(t, "tables", tables(t, db), byHand)
		requireWorks(t, db, ib, "e2")

		other := testdb.Open(t, db.Engine)
		newInbox(t, other)
		require.Equal(t, "tables", tables(t, other), byHand)
	})

	forEachPostgres(t, "creates the schema too", func(t *testing.T, db *testdb.DB) {
		table := db.Schema + "_new.inbox"
		t.Cleanup(func() { db.Exec(t, "DROP SCHEMA "+db.Schema+"_new CASCADE") })

		ddl, err := inbox.Schema(inbox.Postgres, inbox.WithTable(table))
		require.OK(t, err)
		db.Exec(t, ddl)
		requireWorks(t, db, newBare(t, db, inbox.WithTable(table)), "e1")
	})

	forEachPostgres(t, "an empty search_path does not matter", func(t *testing.T, db *testdb.DB) {
		pathless := reopen(t, db, db.DSN+"&options=-c%20search_path%3D")

		var path string

		require.OK(t, pathless.QueryRowContext(t.Context(), "SHOW search_path").Scan(&path))
		require.Equal(t, "search_path", strings.Trim(path, `"`), "")

		ib := newBare(t, pathless, inbox.WithLockTimeout(require.Patience))
		require.OK(t, ib.Migrate(t.Context()))
		requireWorks(t, pathless, ib, "e1")

		known, err := ib.Forget(t.Context(), inbox.Event{Consumer: billing, ID: "e1"})
		require.OK(t, err)
		require.Equal(t, "known", known, true)
	})
}

// reopen opens the same database in another way.
func reopen(t testing.TB, db *testdb.DB, dsn string) *testdb.DB {
	t.Helper()

	opened, err := sql.Open(db.Engine.Driver, dsn)
	require.OK(t, err)
	t.Cleanup(func() { require.OK(t, opened.Close()) })

	other := *db
	other.DB, other.DSN = opened, dsn

	return &other
}
