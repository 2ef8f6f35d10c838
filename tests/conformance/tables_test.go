package conformance_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

var badTables = []string{
	"", " ", ".", "a.", ".a", "a.b.c", "a b", "a-b", "a b.c", "1a", "a.1a", "1.a", "ä", "inbox\x00", "inbox\n", "a\xff",
	`"inbox"`, `public."inbox"`, `inbox"; DROP TABLE effects; --`, "inbox; DROP TABLE effects", "inbox--", "inbox/**/",
	`in"box`, "in`box", "in'box", "in[box]", "inbox)", "(SELECT 1)", "{{ledger}}", "%s", "%d", "$1", "?", "a/b", `a\b`,
	strings.Repeat("a", 51), "a." + strings.Repeat("a", 51), strings.Repeat("a", 51) + ".a", strings.Repeat("a", 1<<20),
	"inbox_outputs", "inbox_payloads", "inbox_migrations", "inbox_unprocessed", "s.inbox_outputs", "INBOX_OUTPUTS", "inbox_Payloads",
}

var goodTables = []string{"a", "_", "_1", "A", "Inbox", "in_box2", "select", "table", "order", "user", strings.Repeat("a", 50)}

func TestTableNames(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "that are no plain names are refused by New and Schema", func(t *testing.T, db *testdb.DB) {
		for _, name := range badTables {
			_, err := inbox.New(db.DB, db.Engine.Dialect, inbox.WithTable(name))
			_, schemaErr := inbox.Schema(db.Engine.Dialect, inbox.WithTable(name))

			for what, err := range map[string]error{"New": err, "Schema": schemaErr} {
				if err == nil {
					t.Errorf("%s accepts the table name %.60q", what, name)

					continue
				}

				require.ErrorNames(t, err, "WithTable")

				if isPlain := strconv.Quote(name) == `"`+name+`"`; isPlain && len(name) < 200 {
					require.ErrorNames(t, err, name)
				}

				if len(err.Error()) > 1000 {
					t.Errorf("the error for a name of %d bytes has %d bytes", len(name), len(err.Error()))
				}
			}
		}

		db.RequireOnce(t) // the table is still there
	})

	forEachEngine(t, "that are plain names work, reserved words and longest ones too", func(t *testing.T, db *testdb.DB) {
		for _, name := range goodTables {
			if name == "A" && db.Engine.Dialect == inbox.SQLite {
				continue // where it is the same as "a"
			}

			ib := newInbox(t, db, inbox.WithTable(db.Schema+"."+name))
			requireWorks(t, db, ib, name)
			require.Equal(t, "events in "+name, db.Int(t, "SELECT count(*) FROM "+db.Table(name)), 1)
		}
	})

	forEachEngine(t, "of two inboxes in one schema share nothing", func(t *testing.T, db *testdb.DB) {
		names := []string{"inbox", "inbox2", "inbox_", "inbox_output", "outputs", "_outputs2", strings.Repeat("a", 49), strings.Repeat("a", 50)}

		var all []*inbox.Inbox

		for _, name := range names {
			all = append(all, newInbox(t, db, inbox.WithTable(db.Schema+"."+name)))
		}

		for i, ib := range all {
			w := returning(db, delivery("output of "+names[i]))

			for range 2 {
				outputs, err := deliver(ib, w.handle, delivery("e1"))
				require.OK(t, err)
				require.Equal(t, "outputs", uuids(outputs), []string{"output of " + names[i]})
			}

			w.requireRuns(t, 1)
		}

		known, err := all[0].Forget(t.Context(), inbox.Event{Consumer: billing, ID: "e1"})
		require.OK(t, err)
		require.Equal(t, "known", known, true)

		for i, name := range names {
			want := min(i, 1)
			require.Equal(t, "events in "+name, db.Int(t, "SELECT count(*) FROM "+db.Table(name)), want)
			require.Equal(t, "outputs of "+name, db.Int(t, "SELECT count(*) FROM "+db.Table(name+"_outputs")), want)
		}
	})

	forEachEngine(t, "without a schema mean the engine's own", func(t *testing.T, db *testdb.DB) {
		ddl, err := inbox.Schema(db.Engine.Dialect, inbox.WithTable("mine"))
		require.OK(t, err)

		qualified := `"public"."mine"`
		if db.Engine.Dialect == inbox.SQLite {
			qualified = `"main"."mine"`
		}

		if !strings.Contains(ddl, qualified) {
			t.Errorf("%s is not in %s", qualified, ddl)
		}

		byDefault, err := inbox.Schema(db.Engine.Dialect)
		require.OK(t, err)

		named, err := inbox.Schema(db.Engine.Dialect, inbox.WithTable("inbox"))
		require.OK(t, err)
		require.Equal(t, "default", byDefault, named)
	})
}
