package proxies_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// The ways in which drivers get along with a proxy that gives every transaction another connection.
var unprepared = []struct {
	name     string
	engine   testdb.Engine
	settings string
	// oneTrip tells that a statement with arguments is one round trip, so that no other client's can come between.
	oneTrip bool
}{
	{"lib pq", testdb.PQ, "", false},
	{"lib pq with binary_parameters", testdb.PQ, "&binary_parameters=yes", true},
	{"pgx with exec", testdb.PGX, "&default_query_exec_mode=exec", true},
	{"pgx with simple_protocol", testdb.PGX, "&default_query_exec_mode=simple_protocol", true},
}

// startProxy returns the DSN of the shared PostgreSQL server through a PgBouncer of the test's own.
func startProxy(t *testing.T) string {
	t.Helper()

	postgres, err := servers.FromEnv("postgres")
	require.OK(t, err)

	proxy := servers.NewPgBouncer(t.TempDir(), postgres)

	t.Cleanup(func() { require.OK(t, proxy.Stop(context.Background())) })
	require.OK(t, proxy.Start(t.Context()))

	return proxy.Addr()
}

func openThrough(t *testing.T, proxy string, engine testdb.Engine, settings string) *testdb.DB {
	t.Helper()

	db := testdb.OpenOn(t, engine, proxy+settings)
	db.EffectsTable(t)

	return db
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()

	for _, way := range unprepared {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()

			db := openThrough(t, startProxy(t), way.engine, way.settings)

			var path string

			require.OK(t, db.QueryRowContext(t.Context(), "SHOW search_path").Scan(&path))
			require.Equal(t, "search_path", path, "pg_catalog")

			var (
				runs atomic.Int32
				ib   = newInbox(t, db, inbox.WithoutPreparedStatements()) // migrates through the proxy
				h    = charge(db, &runs)
			)

			// Fresh, then duplicate: the output of the first is the output of all.
			for range 3 {
				outputs, err := deliver(ib, h, "first")
				require.OK(t, err)
				require.Equal(t, "outputs", len(outputs), 1)
				require.Equal(t, "output", outputs[0].UUID, "receipt of first")
			}

			require.Equal(t, "runs", runs.Load(), 1)

			// More clients than the proxy has connections, every event four times.
			ids := eventIDs("event", 8*servers.PgBouncerPoolSize)

			require.OK(t, together(ids, 4, func(id string) error {
				outputs, err := deliver(ib, h, id)
				if err == nil && (len(outputs) != 1 || outputs[0].UUID != "receipt of "+id) {
					err = errors.New("a delivery of " + id + " has other outputs")
				}

				return err
			}))
			requireAllOnce(t, db, append(ids, "first")...)

			forgotten, err := ib.Forget(t.Context(), inbox.Event{Consumer: "billing", ID: "first"})
			require.OK(t, err)
			require.Equal(t, "forgotten", forgotten, true)
		})
	}

	t.Run("32 deliveries of one event on 4 connections have one effect", func(t *testing.T) {
		t.Parallel()

		db := openThrough(t, startProxy(t), testdb.PQ, "")

		var (
			runs atomic.Int32
			ib   = newInbox(t, db, inbox.WithoutPreparedStatements())
		)

		require.OK(t, together([]string{"e1"}, 32, func(id string) error {
			_, err := deliver(ib, charge(db, &runs), id)

			return err
		}))
		require.Equal(t, "runs", runs.Load(), 1)
		requireAllOnce(t, db, "e1")
	})
}

// What the option is for. PgBouncer before 1.21 does not know of prepared statements: a connection gets the name of a
// statement that was prepared on another.
func TestPgBouncerWithPreparedStatements(t *testing.T) {
	t.Parallel()

	for _, engine := range []testdb.Engine{testdb.PQ, testdb.PGX} {
		t.Run(engine.Name+" may fail but loses and doubles nothing", func(t *testing.T) {
			t.Parallel()

			proxy := startProxy(t)
			db := openThrough(t, proxy, testdb.PQ, "")
			correct := newInbox(t, db, inbox.WithoutPreparedStatements())

			pool, err := sql.Open(engine.Driver, proxy)
			require.OK(t, err)

			defer pool.Close()

			wrong, err := inbox.New(pool, inbox.Postgres, inbox.WithTable(db.Inbox()), asBilling)
			require.OK(t, err)

			var (
				runs   atomic.Int32
				failed atomic.Int32
				h      = charge(db, &runs)
				ids    = eventIDs("event", 64)
			)

			require.OK(t, together(ids, 4, func(id string) error {
				if _, err := deliver(wrong, h, id); err != nil {
					failed.Add(1)
				}

				return nil
			}))

			t.Logf("%d of 256 deliveries failed", failed.Load()) // none where PgBouncer keeps track of prepared statements

			require.OK(t, together(ids, 1, func(id string) error { // the broker does not give up
				_, err := deliver(correct, h, id)

				return err
			}))
			requireAllOnce(t, db, ids...)
		})
	}
}
