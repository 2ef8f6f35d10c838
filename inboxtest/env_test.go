package inboxtest_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestDeliver(t *testing.T) {
	t.Parallel()

	t.Run("returns the same messages for a redelivery", func(t *testing.T) {
		t.Parallel()

		env, msg := newEnv(t), order("1")

		first, err := inboxtest.Deliver(t, env, chargeWithReceipt, msg)
		if err != nil {
			t.Fatal(err)
		}

		again, err := inboxtest.Deliver(t, env, chargeWithReceipt, msg)
		if err != nil {
			t.Fatal(err)
		}

		if len(first) != 2 || len(again) != 2 || first[0].UUID != again[0].UUID || first[1].UUID != again[1].UUID {
			t.Errorf("first %v, then %v", first, again)
		}
	})

	t.Run("returns the handler's error", func(t *testing.T) {
		t.Parallel()

		want := errors.New("out of paper")

		_, err := inboxtest.Deliver(t, newEnv(t), func(*message.Message) error { return want }, order("1"))
		if !errors.Is(err, want) {
			t.Errorf("error is %v", err)
		}
	})

	t.Run("returns a panic as an error", func(t *testing.T) {
		t.Parallel()

		_, err := inboxtest.Deliver(t, newEnv(t), func(*message.Message) error { panic("out of paper") }, order("1"))
		if err == nil || err.Error() != "panic: out of paper" {
			t.Errorf("error is %v", err)
		}
	})

	t.Run("keeps what a handler does to a message from the next delivery", func(t *testing.T) {
		t.Parallel()

		env, msg := newEnv(t), order("1")
		h := func(msg *message.Message) error {
			msg.Payload[0] = 'X'

			return errors.New("out of paper")
		}

		_, _ = inboxtest.Deliver(t, env, h, msg)

		if string(msg.Payload) != "1" {
			t.Errorf("payload is %q", msg.Payload)
		}
	})
}

func TestUnusableInput(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		test func(t testing.TB, env *inboxtest.Env)
		says string
	}{
		"a bad option": {func(t testing.TB, _ *inboxtest.Env) {
			t.Helper()
			inboxtest.New(t, inbox.WithTable(""))
		}, "WithTable"},
		"a bad statement": {func(t testing.TB, env *inboxtest.Env) {
			t.Helper()
			env.Exec(t, `CREATE TABLET`)
		}, "CREATE TABLET"},
		"a bad count": {func(t testing.TB, env *inboxtest.Env) {
			t.Helper()
			inboxtest.RequireOnce(t, env, charge, order("1"), inboxtest.Count(t, `SELECT 1 FROM nowhere`))
		}, "nowhere"},
		"a count that does not count it": {func(t testing.TB, env *inboxtest.Env) {
			t.Helper()
			inboxtest.RequireOnce(t, env, charge, order("1"), func(*sql.DB) int { return 1 })
		}, "Does the effect count what they write?"},
		"a message that was handled": {func(t testing.TB, env *inboxtest.Env) {
			t.Helper()

			msg := order("1")
			count := inboxtest.Count(t, `SELECT count(*) FROM charges`)
			inboxtest.RequireOnce(t, env, charge, msg, count)
			inboxtest.RequireOnce(t, env, charge, msg, count)
		}, "a message with an id of its own"},
		"a message without an id": {func(t testing.TB, env *inboxtest.Env) {
			t.Helper()
			inboxtest.RequireOnce(t, env, charge, message.NewMessage("", nil), inboxtest.Count(t, `SELECT count(*) FROM charges`))
		}, "did not get to the handler: inbox: message has no event id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			env := newEnv(t)

			failure := failureOf(t, func(t testing.TB) {
				t.Helper()
				c.test(t, env)
			})
			if !strings.Contains(failure, c.says) {
				t.Errorf("failure does not say %q, but: %s", c.says, failure)
			}
		})
	}
}

func TestNewWithTakesAnyPool(t *testing.T) {
	t.Parallel()

	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { db.Close() })

	env := inboxtest.NewWith(t, db, inbox.SQLite, inbox.WithTable("shop_inbox"))
	env.Exec(t, `CREATE TABLE charges (order_id TEXT)`)

	inboxtest.RequireOnce(t, env, charge, order("1"), inboxtest.Count(t, `SELECT count(*) FROM charges`))

	if n := inboxtest.Count(t, `SELECT count(*) FROM shop_inbox`)(db); n != 1 {
		t.Errorf("%d rows in the inbox, want 1", n)
	}
}
