package conformance_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A handler only borrows the message: what it does to it must not make another event of the next delivery of the very
// same message, which is what Retry, watermill-kafka and watermill-sql deliver.
func TestBorrowedMessage(t *testing.T) {
	t.Parallel()

	spoil := func(msg *message.Message) {
		msg.UUID = watermill.NewUUID()
		msg.Metadata.Set("event_id", "another")
		msg.Metadata.Set("event_source", "another")
		msg.Payload = append([]byte("spoilt "), msg.Payload...)
	}

	for name, failure := range map[string]error{"fails": errors.New("failed"), "succeeds": nil} {
		forEachEngine(t, "stays the same event when a handler changes it and "+name, func(t *testing.T, db *testdb.DB) {
			ib, w := newInbox(t, db), newWorker(db)
			w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
				require.Equal(t, "payload", string(msg.Payload), "payload of e1")
				spoil(msg)

				if run == 1 {
					return nil, failure
				}

				return nil, nil
			}

			msg := delivery("e1")
			want := msg.Copy()

			for range 3 {
				_, err := deliver(ib, w.handle, msg)
				if err != nil {
					require.ErrorIs(t, err, failure)
				}

				require.Equal(t, "message is as it was", msg.Equals(want), true)
			}

			db.RequireOnce(t, "e1")
			requireRecorded(t, db, 1)
		})
	}

	forEachPostgres(t, "is whole again when an attempt is repeated", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		w.then = func(run int, msg *message.Message) ([]*message.Message, error) {
			require.Equal(t, "payload", string(msg.Payload), "payload of e1")
			spoil(msg)

			if run == 1 {
				return nil, raise(msg, "40001")
			}

			return nil, nil
		}

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		w.requireRuns(t, 2)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "can be changed and returned as an output", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		w.then = func(_ int, msg *message.Message) ([]*message.Message, error) {
			msg.UUID = "changed"
			msg.Payload = []byte("changed")
			msg.Metadata.Set("changed", "yes")

			return []*message.Message{msg}, nil
		}

		msg := delivery("e1")

		first, err := deliver(ib, w.handle, msg)
		require.OK(t, err)

		again, err := deliver(ib, w.handle, msg)
		require.OK(t, err)

		want := message.NewMessage("changed", []byte("changed"))
		want.Metadata.Set("changed", "yes")

		for _, outputs := range [][]*message.Message{first, again} {
			require.Equal(t, "outputs", len(outputs), 1)
			require.Equal(t, "output is what the handler made of it", outputs[0].Equals(want), true)
		}

		w.requireRuns(t, 1)
	})

	forEachEngine(t, "acked by a handler that fails is reported as lost", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib, failure := newInbox(t, db, inbox.WithLogger(logger)), errors.New("failed")

		_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()

			return nil, failure
		}, delivery("e1"))
		require.ErrorIs(t, err, failure)
		require.Equal(t, "reports", len(errorsLogged(logger, "lost")), 1)

		recovered(func() {
			_, _ = deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
				msg.Ack()
				panic("oops")
			}, delivery("e2"))
		})
		require.Equal(t, "reports", len(errorsLogged(logger, "lost")), 2)
	})
}

func TestAcksBeforeTheCommitAreWarnedOfOnce(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "by InstantAck inside of the inbox", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib, w := newInbox(t, db, inbox.WithLogger(logger)), newWorker(db)

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "warnings", len(errorsLogged(logger, "before its commit")), 0)

		for _, id := range []string{"e2", "e3"} {
			_, err := deliver(ib, middleware.InstantAck(w.handle), delivery(id))
			require.OK(t, err)
		}

		require.Equal(t, "warnings", len(errorsLogged(logger, "before its commit")), 1)
		db.RequireOnce(t, "e1", "e2", "e3")
	})
}

func TestOutputsWithOneEventIDAreWarnedOfOnce(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "copies of the incoming message", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib := newInbox(t, db, inbox.WithLogger(logger))

		split := func(msg *message.Message) ([]*message.Message, error) {
			first, second := msg.Copy(), msg.Copy()
			first.UUID, second.UUID = watermill.NewUUID(), watermill.NewUUID()

			return []*message.Message{first, second}, nil
		}

		for _, id := range []string{"e1", "e2"} {
			outputs, err := deliver(ib, split, delivery(id))
			require.OK(t, err)
			require.Equal(t, "outputs", len(outputs), 2)
		}

		require.Equal(t, "warnings", len(errorsLogged(logger, "event id")), 0) // only their UUIDs identify them

		for _, id := range []string{"e3", "e4"} {
			msg := delivery(id)
			msg.Metadata.Set("event_id", id)

			outputs, err := deliver(ib, split, msg)
			require.OK(t, err)
			require.Equal(t, "outputs", len(outputs), 2)
		}

		require.Equal(t, "warnings", len(errorsLogged(logger, "event id")), 1)
	})
}

func TestInTxThatIsStillRunningIsNotCommitted(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "when the handler returns", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)
		written, returned := make(chan struct{}), make(chan struct{})

		_, err := deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
			go func() {
				defer close(returned)

				_ = inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
					_, err := tx.ExecContext(context.Background(), insertEffect(db), "half")

					close(written)
					<-t.Context().Done()

					return err
				})
			}()

			<-written

			return nil, nil
		}, delivery("e1"))
		require.ErrorNames(t, err, "InTx")
		db.RequireOnce(t)
		requireRecorded(t, db, 0)

		t.Cleanup(func() { <-returned })
	})
}

func errorsLogged(logger *watermill.CaptureLoggerAdapter, text string) (entries []watermill.CapturedMessage) {
	for _, entry := range logger.Captured()[watermill.ErrorLogLevel] {
		if strings.Contains(entry.Msg, text) {
			entries = append(entries, entry)
		}
	}

	return entries
}
