package stored_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// die has the next messages fail in their last attempt.
func (p *process) die(t testing.TB, db *testdb.DB, ids ...string) {
	t.Helper()

	for range ids {
		msg := p.next(t)
		require.ErrorIs(t, write(db, msg, errBroken), errBroken)
		msg.Nack()
	}

	for _, id := range ids {
		awaitRow(t, db, id, id+" is dead", func(r row) bool { return r.dead })
	}
}

func keysOf(entries []inbox.Entry) (keys []inbox.Key) {
	for _, e := range entries {
		keys = append(keys, e.Key)
	}

	return keys
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "are what has failed WithMaxAttempts times, listed with message, attempts and error", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryAtOnce, inbox.WithMaxAttempts(3))
		sent := delivery("e1")
		sent.Metadata = message.Metadata{"event_source": "shop\x00", "event_type": "OrderPlaced", "k": "\xff"}
		begin := time.Now().Add(-time.Second)

		p.broker.send(t, orders, sent)
		requireAcked(t, sent)

		for range 3 {
			dead, err := p.Dead(t.Context(), 10)
			require.OK(t, err)
			require.Equal(t, "dead letters", len(dead), 0)

			msg := p.next(t)
			require.ErrorIs(t, write(db, msg, errBroken), errBroken)
			msg.Nack()
		}

		awaitRow(t, db, "e1", "e1 is dead", func(r row) bool { return r.dead })

		dead, err := p.Dead(t.Context(), 10)
		require.OK(t, err)
		require.Equal(t, "dead letters", len(dead), 1)

		e := dead[0]
		for _, at := range []time.Time{e.ReceivedAt, e.DeadAt} {
			if at.Before(begin) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("received at %s and dead at %s", e.ReceivedAt, e.DeadAt)
			}
		}

		require.Equal(t, "uuid", e.Message.UUID, "e1")
		require.Equal(t, "metadata", e.Message.Metadata, sent.Metadata)
		require.Equal(t, "payload", string(e.Message.Payload), "payload of e1")

		ev := inbox.Event{Consumer: billing, Source: "shop\x00", ID: "e1", Type: "OrderPlaced"}
		e.ReceivedAt, e.DeadAt, e.Message = time.Time{}, time.Time{}, nil
		require.Equal(t, "entry", e, inbox.Entry{
			Key: inbox.KeyOf(ev), Event: ev, State: inbox.StateDead, Topic: orders, Attempts: 3, LastError: "broken",
		})
	})

	forEachEngine(t, "are listed oldest first up to the limit, and a limit that is not positive is refused", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithMaxAttempts(1))

		for _, id := range []string{"e1", "e2", "e3"} {
			p.store(t, id)
			p.die(t, db, id)
		}

		dead, err := p.Dead(t.Context(), 2)
		require.OK(t, err)
		require.Equal(t, "number", len(dead), 2)
		require.Equal(t, "first", dead[0].Event.ID, "e1")
		require.Equal(t, "second", dead[1].Event.ID, "e2")

		for _, limit := range []int{0, -1} {
			_, err = p.Dead(t.Context(), limit)
			require.ErrorNames(t, err, "limit")
		}
	})

	forEachEngine(t, "are not handed out, in this process or another", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithMaxAttempts(1))
		p.store(t, "e1")
		p.die(t, db, "e1")

		before := stored(t, db, "e1")
		p.store(t, "e1", "e2")
		p.requireHandedOut(t, "e2")
		p.close(t)

		heir := start(t, another(t, db).New(t))
		heir.store(t, "e3")
		heir.requireHandedOut(t, "e3")
		require.Equal(t, "row", stored(t, db, "e1"), before)
	})

	// Wolverine 1593
	forEachEngine(t, "are handed out again when they are requeued, with all attempts before them", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryAtOnce, inbox.WithMaxAttempts(2))

		for range 2 {
			p.store(t, "e1")

			for attempt := range 2 {
				msg := p.next(t)
				require.Equal(t, "attempts", stored(t, db, "e1").attempts, attempt+1)
				msg.Nack()
			}

			awaitRow(t, db, "e1", "e1 is dead", func(r row) bool { return r.dead })

			dead, err := p.Dead(t.Context(), 10)
			require.OK(t, err)

			unknown := inbox.KeyOf(inbox.Event{Consumer: billing, ID: "unknown"})
			n, err := p.Requeue(t.Context(), dead[0].Key, unknown, dead[0].Key)
			require.OK(t, err)
			require.Equal(t, "requeued", n, 1)
		}

		msg := p.next(t)
		n, err := p.Requeue(t.Context(), inbox.KeyOf(inbox.Event{Consumer: billing, Source: orders, ID: "e1"}))
		require.OK(t, err)
		require.Equal(t, "requeued while it is handled", n, 0)
		require.OK(t, write(db, msg, nil))
		msg.Ack()
		awaitFinished(t, db, "e1")
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "that are requeued elsewhere are handed out here", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithMaxAttempts(1))
		p.store(t, "e1", "e2", "e3")
		p.die(t, db, "e1", "e2", "e3")

		dead, err := p.Dead(t.Context(), 10)
		require.OK(t, err)

		n, err := another(t, db).New(t).Requeue(t.Context(), keysOf(dead)...)
		require.OK(t, err)
		require.Equal(t, "requeued", n, 3)

		for range dead {
			msg := p.next(t)
			require.OK(t, write(db, msg, nil))
			msg.Ack()
		}

		awaitFinished(t, db, "e1", "e2", "e3")
		db.RequireOnce(t, "e1", "e2", "e3")
	})

	forEachEngine(t, "that are discarded are gone, and their events stay duplicates", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithMaxAttempts(1))
		p.store(t, "e1", "e2")
		p.die(t, db, "e1", "e2")

		dead, err := p.Dead(t.Context(), 10)
		require.OK(t, err)

		n, err := p.Discard(t.Context(), dead[0].Key, dead[0].Key)
		require.OK(t, err)
		require.Equal(t, "discarded", n, 1)
		require.Equal(t, "finished", isFinished(t, db, dead[0].Event.ID), true)
		require.Equal(t, "finished", isFinished(t, db, dead[1].Event.ID), false)

		p.store(t, dead[0].Event.ID, "e3")

		msg := p.next(t)
		require.Equal(t, "message", msg.UUID, "e3")

		n, err = p.Discard(t.Context(), dead[0].Key, inbox.KeyOf(inbox.Event{Consumer: billing, Source: orders, ID: "e3"}))
		require.OK(t, err)
		require.Equal(t, "discarded of what is not dead", n, 0)

		for _, decide := range []func() (int64, error){
			func() (int64, error) { return p.Discard(t.Context()) }, func() (int64, error) { return p.Requeue(t.Context()) },
		} {
			n, err := decide()
			require.OK(t, err)
			require.Equal(t, "number without keys", n, 0)
		}
	})

	forEachEngine(t, "are also messages whose attempts never end, as when they kill the process", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		var calls told

		p := start(t, db.New(t), inbox.WithMaxAttempts(3))
		p.store(t, "e1")
		p.next(t)

		for range 2 { // processes that die of it
			steal(t, db, "e1", time.Hour)
		}

		p.close(t)
		setDue(t, db, "e1", -time.Second)

		heir := start(t, another(t, db).New(t, inbox.WithLogger(logger), inbox.WithHooks(calls.hooks())), inbox.WithMaxAttempts(3))
		awaitRow(t, db, "e1", "e1 is dead", func(r row) bool { return r.dead })
		heir.store(t, "e2")
		heir.requireHandedOut(t, "e2")

		dead, err := heir.Dead(t.Context(), 1)
		require.OK(t, err)

		require.Equal(t, "attempts", dead[0].Attempts, 3)

		if dead[0].LastError == "" {
			t.Error("no error says why")
		}

		heir.close(t)
		requireLogged(t, logger, "dead letter", "e1")

		var died int
		for _, call := range calls.take() {
			if len(call) > 4 && call[:4] == "dead" {
				died++
			}
		}

		require.Equal(t, "calls of the Dead hook", died, 1)
	})

	forEachEngine(t, "are also stored messages that cannot be read, and hide no others", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")
		p.close(t)

		overwrite(t, db, "0163") // of this version, and truncated

		heir := start(t, another(t, db).New(t))
		awaitRow(t, db, "e1", "e1 is dead", func(r row) bool { return r.dead })
		heir.store(t, "e2")
		heir.requireHandedOut(t, "e2")

		dead, err := heir.Dead(t.Context(), 10)
		require.OK(t, err)
		require.Equal(t, "dead letters", len(dead), 1)
		require.Equal(t, "id", dead[0].Event.ID, "e1")
	})

	forEachEngine(t, "are not stored messages of a newer version, which wait for a process that can read them", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t))
		p.store(t, "e1")
		p.close(t)
		overwrite(t, db, "0263")

		start(t, another(t, db).New(t))
		awaitRow(t, db, "e1", "e1 waits", func(r row) bool { return r.attempts > 0 && r.owner == "" && !r.dead })
	})
}

// overwrite puts bytes, given in hex, in the place of all stored messages.
func overwrite(t *testing.T, db *testdb.DB, bytes string) {
	t.Helper()

	value := `'\x` + bytes + `'::bytea`
	if db.Engine.Dialect == inbox.SQLite {
		value = "x'" + bytes + "'"
	}

	db.Exec(t, "UPDATE "+db.Table("inbox_payloads")+" SET message = "+value)
}
