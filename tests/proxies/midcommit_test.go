package proxies_test

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"

	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// slowCommits has the server wait in the middle of a COMMIT, before it writes it to disk.
const slowCommits = "&options=-c%20commit_delay%3D100000%20-c%20commit_siblings%3D0"

// The server goes away while commits are on their way: of some the answer is lost, of some the commit. The application's
// pool is full of broken connections then. Redelivery sorts it out.
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
			t.Cleanup(func() { requireOK(t, server.Stop(context.Background())) })
			requireOK(t, server.Start(t.Context()))

			for _, engine := range []testdb.Engine{testdb.PQ, testdb.PGX} {
				db := testdb.OpenOn(t, engine, server.Addr()+slowCommits)
				db.SetMaxIdleConns(16)
				db.EffectsTable(t)

				var (
					runs, failed atomic.Int32
					ib           = newInbox(t, db)
					ids          = eventIDs(engine.Name, 16)
					h            = charge(db, &runs)
				)

				// A first round fills the pool with connections that have prepared statements.
				requireOK(t, together(eventIDs("before", 16), 1, func(id string) error {
					_, err := deliver(ib, h, id)

					return err
				}))
				db.Exec(t, "DELETE FROM "+db.Table("effects"))
				db.Exec(t, "DELETE FROM "+db.Table("inbox"))

				gone := make(chan error, 1)

				go func() {
					gone <- together(ids, 2, func(id string) error {
						if _, err := deliver(ib, h, id); err != nil {
							failed.Add(1)
						}

						return nil
					})
				}()

				awaitCommits(t, server, 8)
				requireOK(t, end.now(server))
				requireOK(t, <-gone)

				if failed.Load() == 0 {
					t.Error("no delivery failed: the server went away too late")
				}

				requireOK(t, server.Start(t.Context()))
				requireOK(t, together(ids, 2, func(id string) error { return untilHandled(ib, h, id) }))
				db.SetMaxIdleConns(0) // closes those that are still broken

				for _, id := range ids {
					outputs, err := deliver(ib, h, id)
					requireOK(t, err)
					requireEqual(t, "outputs", len(outputs), 1)
					requireEqual(t, "output", outputs[0].UUID, "receipt of "+id)
				}

				requireAllOnce(t, db, ids...)
			}
		})
	}
}

// awaitCommits returns when so many sessions are in a COMMIT.
func awaitCommits(t *testing.T, server *servers.Postgres, n int) {
	t.Helper()

	observer, err := sql.Open("postgres", server.Addr())
	requireOK(t, err)

	defer observer.Close()

	eventually(t, "sessions commit", func() bool {
		var committing int
		err := observer.QueryRowContext(t.Context(),
			`SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND lower(query) LIKE 'commit%'`).Scan(&committing)
		requireOK(t, err)

		return committing >= n
	})
}
