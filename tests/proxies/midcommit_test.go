package proxies_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// slowCommits has the server wait before it writes a COMMIT to disk.
const slowCommits = "&options=-c%20commit_delay%3D100000%20-c%20commit_siblings%3D0"

// The server goes away while commits are on their way. Half of them are held before the server has decided; of the
// others some are done, or only their answer is lost. The application's pool is full of broken connections then.
// Redelivery sorts it out.
func TestServerThatGoesAwayDuringCommits(t *testing.T) {
	t.Parallel()

	for _, end := range []struct {
		name string
		now  func(*servers.Postgres) error
	}{
		{"killed", (*servers.Postgres).Kill},
		{"restarted", func(s *servers.Postgres) error { return s.Stop(context.Background()) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			t.Parallel()

			server := servers.NewPostgres(t.TempDir())
			t.Cleanup(func() { require.OK(t, server.Stop(context.Background())) })
			require.OK(t, server.Start(t.Context()))

			for _, engine := range []testdb.Engine{testdb.PQ, testdb.PGX} {
				db := testdb.OpenOn(t, engine, server.Addr()+slowCommits)
				db.SetMaxIdleConns(16)
				db.EffectsTable(t)

				var (
					runs, failed atomic.Int32
					ib           = newInbox(t, db, inbox.WithTxTimeout(require.Patience))
					ids          = eventIDs(engine.Name, 16)
					h            = charge(db, &runs)
				)

				// A first round fills the pool with connections that have prepared statements.
				require.OK(t, together(eventIDs("before", 16), 1, func(id string) error {
					_, err := deliver(ib, h, id)

					return err
				}))
				db.Exec(t, "DELETE FROM "+db.Table("effects"))
				db.Exec(t, "DELETE FROM "+db.Table("inbox"))

				session := holdCommits(t, server, db)
				gone := make(chan error, 1)

				go func() {
					gone <- together(ids, 2, func(id string) error {
						if _, err := deliver(ib, h, id); err != nil {
							failed.Add(1)
						}

						return nil
					})
				}()

				awaitCommits(t, session, len(ids)/2)
				require.OK(t, end.now(server))
				require.OK(t, <-gone)
				require.OK(t, session.Close())

				if failed.Load() < int32(len(ids)/2) {
					t.Errorf("%d deliveries failed: fewer than were held in their commit", failed.Load())
				}

				require.OK(t, server.Start(t.Context()))
				require.OK(t, together(ids, 2, func(id string) error { return untilHandled(ib, h, id) }))
				db.SetMaxIdleConns(0) // closes those that are still broken

				for _, id := range ids {
					outputs, err := deliver(ib, h, id)
					require.OK(t, err)
					require.Equal(t, "outputs", len(outputs), 1)
					require.Equal(t, "output", outputs[0].UUID, "receipt of "+id)
				}

				requireAllOnce(t, db, ids...)
			}
		})
	}
}

// holdCommits has commits of events whose name ends in an even digit wait, within the COMMIT, until the returned session
// is closed or the server is gone.
func holdCommits(t *testing.T, server *servers.Postgres, db *testdb.DB) *sql.DB {
	t.Helper()

	const lock = "4711"

	wait := db.Table("wait_in_commit")
	db.Exec(t, `CREATE FUNCTION `+wait+`() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(`+lock+`); RETURN NULL; END $$`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON `+db.Table("effects")+` DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (NEW.event ~ '[02468]$') EXECUTE FUNCTION `+wait+`()`)

	session, err := sql.Open("postgres", server.Addr())
	require.OK(t, err)
	session.SetMaxOpenConns(1)

	_, err = session.ExecContext(t.Context(), "SELECT pg_advisory_lock("+lock+")")
	require.OK(t, err)

	return session
}

// awaitCommits returns when so many sessions are held in their COMMIT.
func awaitCommits(t *testing.T, observer *sql.DB, n int) {
	t.Helper()
	require.Eventually(t, "sessions commit", func() bool {
		var committing int
		err := observer.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event = 'advisory' AND lower(query) LIKE 'commit%'`).Scan(&committing)
		require.OK(t, err)

		return committing == n
	})
}
