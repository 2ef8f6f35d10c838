package stored_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// nackAndSee nacks a message and returns the bounds of the pause that was given to it.
func nackAndSee(t testing.TB, db *testdb.DB, msg *message.Message) (r row, atLeast, atMost time.Duration) {
	t.Helper()

	before := time.Now()

	msg.Nack()
	r = awaitRelease(t, db, msg.UUID)

	const precision = 2 * time.Millisecond // of due_at, and between the clocks of one machine

	return r, time.Until(r.due) - precision, r.due.Sub(before) + precision
}

func TestRetry(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "pauses grow with each attempt, between half and all of it at random, up to the longest", func(t *testing.T, db *testdb.DB) {
		const initial, longest = 100 * time.Second, 300 * time.Second

		p := start(t, db.New(t), inbox.WithBackoff(initial, longest))
		ids := numbered("e", 5)
		p.store(t, ids...)

		for attempt, full := range []time.Duration{initial, 2 * initial, longest, longest, longest} {
			var pauses []time.Duration

			for range ids {
				msg := p.next(t)
				r, atLeast, atMost := nackAndSee(t, db, msg)
				require.Equal(t, "attempts", r.attempts, attempt+1)
				require.Equal(t, "dead", r.dead, false)

				if atMost < full/2 || atLeast > full {
					t.Errorf("attempt %d of %s: a pause of %s to %s, want between half and all of %s", attempt+1, msg.UUID, atLeast, atMost, full)
				}

				pauses = append(pauses, atMost)
			}

			if slices.Max(pauses)-slices.Min(pauses) < full/1000 {
				t.Errorf("attempt %d: pauses of %s are not random", attempt+1, pauses)
			}

			for _, id := range ids {
				setDue(t, db, id, -time.Second)
			}
		}
	})

	forEachEngine(t, "a nacked message waits for its pause and then is handed out again", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithBackoff(200*time.Millisecond, 200*time.Millisecond))
		p.store(t, "e1")

		r, _, _ := nackAndSee(t, db, p.next(t))
		msg := p.next(t)

		if early := time.Until(r.due); early > 2*time.Millisecond {
			t.Errorf("it comes %s early", early)
		}

		require.Equal(t, "payload", string(msg.Payload), "payload of e1")
		require.Equal(t, "attempts", stored(t, db, "e1").attempts, 2)
	})

	// MassTransit 4299
	forEachEngine(t, "a message that waits holds no connection and no other message up", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), retryNever, inbox.WithConcurrency(1))
		ids := numbered("e", 5)
		p.store(t, ids...)

		for range ids {
			p.next(t).Nack()
		}

		for _, id := range ids {
			awaitRelease(t, db, id)
		}

		require.Eventually(t, "no connection is in use", func() bool { return db.Stats().InUse == 0 })
	})

	forEachEngine(t, "the last error that the middleware or InTx saw is kept", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)
		p := start(t, ib, retryNever)
		p.store(t, "e1")

		handler := func(err error) message.HandlerFunc {
			return ib.Middleware(func(*message.Message) ([]*message.Message, error) {
				if err == nil {
					panic("oops")
				}

				return nil, err
			})
		}
		hostile := "line\nbreak \x00\xff" + strings.Repeat("x", 10_000)
		fail := func(how func(msg *message.Message)) (lastError string) {
			msg := p.next(t)
			how(msg)
			msg.Nack()

			lastError = awaitRelease(t, db, "e1").lastError
			setDue(t, db, "e1", -time.Second)

			return lastError
		}

		require.Equal(t, "last error", fail(func(*message.Message) {}), "message was nacked")
		require.Equal(t, "last error", fail(func(msg *message.Message) { _, _ = handler(errBroken)(msg) }), "broken")
		require.Equal(t, "last error", fail(func(msg *message.Message) { _ = write(db, msg, errors.New("in InTx")) }), "in InTx")
		require.Equal(t, "last error", fail(func(*message.Message) {}), "in InTx") // the last one that was seen

		stored := fail(func(msg *message.Message) { _ = write(db, msg, errors.New(hostile)) })
		if !strings.HasPrefix(stored, `line\nbreak \x00\xff`) || len(stored) > 2000 {
			t.Errorf("last error of %d bytes: %.100q", len(stored), stored)
		}

		panicked := fail(func(msg *message.Message) {
			defer func() { _ = recover() }()

			_, _ = handler(nil)(msg)
		})
		if !strings.Contains(panicked, "panic") {
			t.Errorf("last error is %q", panicked)
		}
	})

	// MassTransit 6006
	forEachEngine(t, "one delivery counts as one attempt, however often it fails inside", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)
		p := start(t, ib, retryNever)
		p.store(t, "e1")

		msg := p.next(t)
		for range 3 { // as a Retry outside of the inbox does
			_, err := ib.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, errBroken })(msg)
			require.ErrorIs(t, err, errBroken)
			require.ErrorIs(t, write(db, msg, errBroken), errBroken)
		}

		msg.Nack()
		require.Equal(t, "attempts", awaitRelease(t, db, "e1").attempts, 1)
	})
}
