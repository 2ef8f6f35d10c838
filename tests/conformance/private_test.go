package conformance_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

var logged = regexp.MustCompile(`(?m)LOG:  (?:statement|execute [^:]*): (.*)$`)

// loggingPostgres is a server without other traffic, with the effects table, that logs statements. sent returns those
// since the last time.
func loggingPostgres(t *testing.T, engine testdb.Engine) (db *testdb.DB, sent func() []string) {
	t.Helper()

	server := servers.NewPostgres(t.TempDir())
	require.OK(t, server.Start(t.Context()))
	t.Cleanup(func() { require.OK(t, server.Stop(context.Background())) })

	pool, err := sql.Open(engine.Driver, server.Addr())
	require.OK(t, err)
	t.Cleanup(func() { require.OK(t, pool.Close()) })

	db = &testdb.DB{DB: pool, Engine: engine, DSN: server.Addr(), Schema: "public"}
	db.Exec(t, "ALTER SYSTEM SET autovacuum = off")
	db.Exec(t, "SELECT pg_reload_conf()")
	db.Exec(t, "ALTER DATABASE postgres SET log_statement = 'all'") // for connections from here on
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(2)
	db.EffectsTable(t)

	read := 0

	return db, func() (queries []string) {
		log, err := os.ReadFile(server.LogFile())
		require.OK(t, err)

		for _, match := range logged.FindAllSubmatch(log[read:], -1) {
			queries = append(queries, string(match[1]))
		}

		read = len(log)

		return queries
	}
}

// withoutReads leaves out what SQLite reads within the process.
func withoutReads(queries []string) []string {
	return slices.DeleteFunc(queries, func(query string) bool {
		return strings.HasPrefix(query, "PRAGMA") || strings.HasPrefix(query, "SELECT")
	})
}
