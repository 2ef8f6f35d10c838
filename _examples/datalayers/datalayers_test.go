package datalayers

import (
	"database/sql"
	_ "embed"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	gormsqlite "github.com/libtnb/sqlite"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"go.uber.org/goleak"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

//go:embed billing/schema.sql
var schema string

// layers are the handlers, made for a database.
var layers = map[string]func(t *testing.T, db *sql.DB) message.NoPublishHandlerFunc{
	"sql":  func(*testing.T, *sql.DB) message.NoPublishHandlerFunc { return ChargeWithSQL },
	"sqlx": func(*testing.T, *sql.DB) message.NoPublishHandlerFunc { return ChargeWithSqlx },
	"sqlc": func(*testing.T, *sql.DB) message.NoPublishHandlerFunc { return ChargeWithSqlc },
	"ent":  func(*testing.T, *sql.DB) message.NoPublishHandlerFunc { return ChargeWithEnt },
	"bun": func(_ *testing.T, db *sql.DB) message.NoPublishHandlerFunc {
		return ChargeWithBun(bun.NewDB(db, sqlitedialect.New()))
	},
	"gorm": func(t *testing.T, db *sql.DB) message.NoPublishHandlerFunc {
		t.Helper()

		gormDB, err := gorm.Open(gormsqlite.New(gormsqlite.Config{Conn: db}), &gorm.Config{Logger: logger.Discard})
		if err != nil {
			t.Fatal(err)
		}

		return ChargeWithGORM(gormDB)
	},
}

func TestEveryLayer(t *testing.T) {
	t.Parallel()

	for layer, handler := range layers {
		t.Run(layer+" charges once, whatever fails", func(t *testing.T) {
			t.Parallel()

			env := newEnv(t)
			charges := inboxtest.Count(t, `SELECT count(*) FROM charges WHERE order_id = '4711' AND cents = 995`)
			inboxtest.RequireOnce(t, env, handler(t, env.DB), newOrder(), charges)
		})

		t.Run(layer+" is rolled back with the event", func(t *testing.T) {
			t.Parallel()

			env, msg := newEnv(t), newOrder()
			charge := handler(t, env.DB)
			unlucky := errors.New("failed after the work")

			_, err := inboxtest.Deliver(t, env, func(msg *message.Message) error { return errors.Join(charge(msg), unlucky) }, msg)
			if !errors.Is(err, unlucky) || strings.Contains(err.Error(), "locked") {
				t.Errorf("error is %v, want %v alone", err, unlucky)
			}

			for _, table := range []string{"charges", "inbox"} {
				if n := inboxtest.Count(t, `SELECT count(*) FROM `+table)(env.DB); n != 0 {
					t.Errorf("%d rows stayed in %s", n, table)
				}
			}
		})

		t.Run(layer+" refuses to work without an inbox", func(t *testing.T) {
			t.Parallel()

			env := newEnv(t)
			if err := handler(t, env.DB)(newOrder()); !errors.Is(err, errNoInbox) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func newEnv(t *testing.T) *inboxtest.Env {
	t.Helper()

	env := inboxtest.New(t)
	env.Exec(t, schema)

	return env
}

func newOrder() *message.Message {
	return message.NewMessage(watermill.NewUUID(), []byte(`{"order_id": "4711", "amount_cents": 995}`))
}
