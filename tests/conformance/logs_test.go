package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

const secret = "4111-1111-1111-1111"

// confidential returns a message whose payload and a metadata value are nobody's business.
func confidential(id string) *message.Message {
	return &message.Message{UUID: id, Metadata: message.Metadata{"card": secret}, Payload: []byte(secret)}
}

func TestSecrets(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "payloads and metadata values get into no log entry and no error", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib := newInbox(t, db, inbox.WithLogger(logger), inbox.WithTxTimeout(require.Patience), inbox.WithLockTimeout(short),
			inbox.WithHooks(inbox.Hooks{Processed: func(context.Context, inbox.Event) { panic("in a hook") }}))

		requireSilent := func(what string, h message.HandlerFunc, msg *message.Message) {
			t.Helper()

			var err error

			recovered(func() { _, err = deliver(ib, h, msg) })

			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: error %v", what, err)
			}
		}

		for _, output := range [][]*message.Message{nil, {confidential("o1")}, {confidential("o1"), nil}} {
			w := newWorker(db)
			w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
				inbox.AfterCommit(msg.Context(), func(context.Context) { panic("after the commit") })

				switch run {
				case 1:
					return output, errors.New("failed")
				case 2:
					panic("oops")
				default:
					return output, nil
				}
			}

			for range 5 {
				requireSilent("handling", w.handle, confidential(fmt.Sprint("e", len(output))))
			}
		}

		requireSilent("no id", newWorker(db).handle, confidential(""))

		acked := confidential("acked")
		acked.Ack()
		requireSilent("acked", newWorker(db).handle, acked)

		requireSilent("ended", func(msg *message.Message) ([]*message.Message, error) {
			tx, _ := inbox.TxFromContext(msg.Context())

			return message.Messages{confidential("o1")}, tx.Rollback()
		}, confidential("ended"))

		requireSilent("in flight", func(msg *message.Message) ([]*message.Message, error) {
			return deliver(ib, newWorker(db).handle, msg.CopyWithContext())
		}, confidential("copy"))

		db.Exec(t, "DROP TABLE "+db.Table("inbox_outputs"))
		requireSilent("no table", func(*message.Message) ([]*message.Message, error) {
			return message.Messages{confidential("o1")}, nil
		}, confidential("e9"))

		failing := db.New(t, consumer(billing), inbox.WithLogger(logger), inbox.WithTable(db.Schema+".other"),
			inbox.WithOutbox(func(*sql.Tx) (message.Publisher, error) { return nil, errors.New("no publisher") }))

		_, err := deliver(failing, func(*message.Message) ([]*message.Message, error) {
			return message.Messages{confidential("o1")}, nil
		}, confidential("e1"))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("outbox: error %v", err)
		}

		entries := 0

		for _, level := range logger.Captured() {
			for _, entry := range level {
				entries++

				if text := fmt.Sprintf("%s %v %+v", entry.Msg, entry.Err, entry.Fields); strings.Contains(text, secret) {
					t.Errorf("logged: %s", text)
				}
			}
		}

		if entries < 4 { // panics of the hook and of AfterCommit, duplicates
			t.Errorf("%d log entries: the test sees too little", entries)
		}
	})

	forEachEngine(t, "log entries say which event, with hostile ids escaped and bounded", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib := newInbox(t, db, inbox.WithLogger(logger))
		hostile := "e1\n2026-01-01 level=error " + strings.Repeat("x", 100_000)

		for range 2 {
			_, err := deliver(ib, newWorker(db).handle, delivery(hostile))
			require.OK(t, err)
		}

		_, err := deliver(ib, failing(db, nil).handle, &message.Message{UUID: "", Metadata: message.Metadata{hostile: "v"}})
		require.ErrorIs(t, err, inbox.ErrNoEventID)

		if text := err.Error(); len(text) > 2000 || strings.Contains(text, "\n") {
			t.Errorf("error of %d bytes: %.300q", len(text), text)
		}

		found := false

		for _, level := range logger.Captured() {
			for _, entry := range level {
				text := fmt.Sprintf("%s %v %v", entry.Msg, entry.Err, entry.Fields)
				found = found || strings.Contains(text, "e1")

				if len(text) > 2000 || strings.Contains(text, "\n") {
					t.Errorf("log entry of %d bytes: %.300q", len(text), text)
				}
			}
		}

		if !found {
			t.Error("no log entry names the event")
		}
	})
}
