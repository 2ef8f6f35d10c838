package stored_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// errorsIn returns what was logged as errors, one text each.
func errorsIn(logger *watermill.CaptureLoggerAdapter) (texts []string) {
	for _, entry := range logger.Captured()[watermill.ErrorLogLevel] {
		texts = append(texts, fmt.Sprintf("%s: %v %v", entry.Msg, entry.Err, entry.Fields))
	}

	return texts
}

// requireLogged fails unless one error was logged that has all the words.
func requireLogged(t testing.TB, logger *watermill.CaptureLoggerAdapter, words ...string) {
	t.Helper()

	found := 0

	for _, text := range errorsIn(logger) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(text, word)
		}

		if has {
			found++
		}
	}

	if found != 1 {
		t.Errorf("%d errors with %q in the log: %q", found, words, errorsIn(logger))
	}
}

func TestLog(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "names events and has no payload and no metadata value", func(t *testing.T, db *testdb.DB) {
		const secret = "4111-1111-1111-1111"

		logger := watermill.NewCaptureLogger()
		ib := db.New(t, inbox.WithLogger(logger))
		p := start(t, ib, retryAtOnce, inbox.WithMaxAttempts(1))
		confidential := func(id string) *message.Message {
			msg := message.NewMessage(id, []byte(secret))
			msg.Metadata.Set("card", secret)

			return msg
		}
		send := func(id string) {
			msg := confidential(id)
			p.broker.send(t, orders, msg)
			answer(t, msg)
		}

		send("")
		send("dead")
		_ = write(db, p.next(t), errBroken)
		p.close(t)
		p = start(t, ib, retryAtOnce, inbox.WithMaxAttempts(1))
		db.Exec(t, "ALTER TABLE "+db.Table("inbox")+" RENAME TO away")
		send("refused")
		db.Exec(t, "ALTER TABLE "+db.Table("away")+" RENAME TO inbox")
		send("lost")

		msg := p.next(t)
		steal(t, db, "lost", time.Hour)
		require.ErrorIs(t, write(db, msg, nil), inbox.ErrLeaseLost)
		p.close(t)

		var all []string

		for _, entries := range logger.Captured() {
			for _, entry := range entries {
				all = append(all, fmt.Sprintf("%s %v %v", entry.Msg, entry.Err, entry.Fields))
			}
		}

		text := strings.Join(all, "\n")
		for _, word := range []string{"event id", "dead", "broken", "nacks", "lease", "lost"} {
			if !strings.Contains(text, word) {
				t.Errorf("the log does not say %q: the test sees too little: %s", word, text)
			}
		}

		if strings.Contains(text, secret) {
			t.Errorf("logged: %s", text)
		}
	})

	forEachEngine(t, "warns of two subscriptions that share the events of a consumer, and not of a backlog", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib := db.New(t, inbox.WithLogger(logger))
		p := start(t, ib)
		startBacklog(t, ib)
		subscribe(t, p.subscriber, "refunds")
		require.Equal(t, "errors", errorsIn(logger), nil)

		subscribe(t, p.subscriber, orders)
		requireLogged(t, logger, "second subscription", billing, orders)
		require.Equal(t, "errors", len(errorsIn(logger)), 1)
	})
}
