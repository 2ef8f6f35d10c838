package stored_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestStoreFailure(t *testing.T) {
	t.Parallel()

	// watermill 184, 192, 265
	forEachEngine(t, "a message without an id is nacked alone and logged", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		p := start(t, db.New(t, inbox.WithLogger(logger)), inbox.WithIngest(4))
		good, bad := deliveries("e1", "e2"), delivery("")

		sendTogether(t, db, p, good[0], bad, good[1])
		requireAcked(t, good...)
		requireNacked(t, bad)
		requireRecorded(t, db, 3)
		requireLogged(t, logger, inbox.ErrNoEventID.Error(), billing, orders)
	})

	forEachEngine(t, "a function of the user's that panics has its message nacked alone", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		id := func(msg *message.Message) string {
			if msg.UUID == "bad" {
				panic("cannot parse")
			}

			return msg.UUID
		}
		key := func(msg *message.Message) string {
			if msg.UUID == "worse" {
				panic("no key")
			}

			return ""
		}
		p := start(t, db.New(t, inbox.WithLogger(logger), inbox.WithEventID(id)), inbox.WithIngest(5), inbox.WithOrderingKey(key))
		good, bad := deliveries("e1", "e2"), deliveries("bad", "worse")

		sendTogether(t, db, p, good[0], bad[0], bad[1], good[1])
		requireAcked(t, good...)
		requireNacked(t, bad...)
		requireRecorded(t, db, 3)
		requireLogged(t, logger, "cannot parse", `bad`)
		requireLogged(t, logger, "no key", `worse`)
	})

	huge := message.Payload(make([]byte, 257<<20)) // shared, because it is never looked at

	forEachEngine(t, "a message that is too large is nacked alone, with the limit in the log", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		p := start(t, db.New(t, inbox.WithLogger(logger)), inbox.WithIngest(4))
		good, bad := deliveries("e1", "e2"), message.NewMessage("bad", huge)

		sendTogether(t, db, p, good[0], bad, good[1])
		requireAcked(t, good...)
		requireNacked(t, bad)
		requireRecorded(t, db, 3)
		requireLogged(t, logger, "bad", fmt.Sprint(257<<20), fmt.Sprint(256<<20))
	})

	// requireNothingLost sends messages that cannot be stored, and again once they can.
	requireNothingLost := func(t *testing.T, p *process, db *testdb.DB, repair func()) {
		t.Helper()

		ids := numbered("e", 3)
		refused := deliveries(ids...)
		p.broker.send(t, orders, refused...)
		requireNacked(t, refused...)
		repair()
		requireRecorded(t, db, 0)

		p.store(t, ids...)
		p.requireHandedOut(t, ids...)
		awaitFinished(t, db, ids...)
	}

	forEachEngine(t, "a commit that fails nacks the messages and loses nothing", func(t *testing.T, db *testdb.DB) {
		db.New(t)
		failing, repair := failCommits(t, db)
		logger := watermill.NewCaptureLogger()
		requireNothingLost(t, start(t, failing.New(t, inbox.WithLogger(logger)), inbox.WithIngest(3)), db, repair)

		if len(errorsIn(logger)) == 0 {
			t.Error("nothing is logged")
		}
	})

	// camel 24809
	forEachEngine(t, "a table that is away for a while loses nothing", func(t *testing.T, db *testdb.DB) {
		p := start(t, db.New(t), inbox.WithIngest(3))

		db.Exec(t, "ALTER TABLE "+db.Table("inbox")+" RENAME TO away")
		requireNothingLost(t, p, db, func() { db.Exec(t, "ALTER TABLE "+db.Table("away")+" RENAME TO inbox") })
	})

	forEachEngine(t, "a database that cannot be reached has everything nacked, and another process stores it", func(t *testing.T, db *testdb.DB) {
		unreachable := another(t, db)
		p1, p2 := start(t, unreachable.New(t), inbox.WithIngest(3)), start(t, db.New(t))

		require.OK(t, unreachable.Close())

		ids := numbered("e", 3)
		refused := deliveries(ids...)
		p1.broker.send(t, orders, refused...)
		requireNacked(t, refused...)
		p2.store(t, ids...)
		p2.requireHandedOut(t, ids...)
	})

	forEachEngine(t, "a broker that refuses the subscription is an error, and one that ends by itself ends the messages", func(t *testing.T, db *testdb.DB) {
		logger := watermill.NewCaptureLogger()
		ib := db.New(t, inbox.WithLogger(logger))
		refusal := errors.New("no such queue")

		sub, err := ib.Subscriber(billing, refusing{refusal})
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, sub.Close()) })

		_, err = sub.Subscribe(t.Context(), orders)
		require.ErrorIs(t, err, refusal)
		require.ErrorNames(t, err, billing, orders)

		ending := newBroker()
		sub, err = ib.Subscriber(billing, onlySubscribe{ending})
		require.OK(t, err)
		t.Cleanup(func() { require.OK(t, sub.Close()) })

		messages := subscribe(t, sub, orders)
		require.OK(t, ending.Close())

		if msg := require.Await(t, "the end of the messages", messages); msg != nil {
			t.Errorf("got message %q", msg.UUID)
		}

		requireLogged(t, logger, "the broker's", orders)
	})
}

// refusing is a broker that lets nobody subscribe.
type refusing struct{ err error }

func (r refusing) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return nil, r.err
}
func (refusing) Close() error { return nil }

// onlySubscribe leaves closing to the test.
type onlySubscribe struct{ *broker }

func (onlySubscribe) Close() error { return nil }
