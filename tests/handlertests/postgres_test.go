// Package handlertests shows that inboxtest works on PostgreSQL, through both drivers. It needs the address of a server in
// INBOX_TEST_POSTGRES.
package handlertests_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestPostgres(t *testing.T) {
	t.Parallel()

	for _, driver := range []string{"postgres", "pgx"} {
		t.Run(driver+" finds nothing wrong with a good handler", func(t *testing.T) {
			t.Parallel()

			env, schema := newEnv(t, driver)
			charge := func(msg *message.Message) ([]*message.Message, error) {
				tx, _ := inbox.TxFromContext(msg.Context())
				_, err := tx.ExecContext(msg.Context(), `INSERT INTO `+schema+`.charges (order_id) VALUES ($1)`, string(msg.Payload))

				return []*message.Message{order("receipt")}, err
			}

			inboxtest.RequireOnce(t, env, charge, order("1"), count(t, schema))
		})

		t.Run(driver+" sees what is written through the pool stay", func(t *testing.T) {
			t.Parallel()

			env, schema := newEnv(t, driver)
			charge := func(msg *message.Message) error {
				_, err := env.DB.ExecContext(msg.Context(), `INSERT INTO `+schema+`.charges (order_id) VALUES ($1)`, string(msg.Payload))

				return err
			}

			r := &recorder{TB: t}
			done := make(chan struct{})

			go func() {
				defer close(done)

				inboxtest.RequireOnce(r, env, charge, order("1"), count(r, schema))
			}()

			<-done

			const says = "the effect is +1 instead of 0: the handler writes outside of the transaction"
			if !strings.Contains(r.failure, says) {
				t.Errorf("failure does not say %q, but: %s", says, r.failure)
			}
		})
	}
}

// recorder is a test that may fail without failing the one around it.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func order(id string) *message.Message {
	return message.NewMessage(watermill.NewUUID(), []byte(id))
}

func count(t testing.TB, schema string) func(*sql.DB) int {
	t.Helper()

	return inboxtest.Count(t, `SELECT count(*) FROM `+schema+`.charges`)
}

// newEnv makes a schema that goes away with the test.
func newEnv(t *testing.T, driver string) (env *inboxtest.Env, schema string) {
	t.Helper()

	dsn := os.Getenv("INBOX_TEST_POSTGRES")
	if dsn == "" {
		t.Fatal("INBOX_TEST_POSTGRES is not set: run `make test`, or set it to the address of a server that already runs")
	}

	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { db.Close() })

	schema = "inboxtest_" + strings.ToLower(watermill.NewShortUUID())
	t.Cleanup(func() {
		if _, err := db.ExecContext(context.Background(), `DROP SCHEMA IF EXISTS `+schema+` CASCADE`); err != nil {
			t.Error(err)
		}
	})

	env = inboxtest.NewWith(t, db, inbox.Postgres, inbox.WithTable(schema+".inbox"))
	env.Exec(t, `CREATE TABLE `+schema+`.charges (order_id text)`)

	return env, schema
}
