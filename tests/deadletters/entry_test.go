package deadletters_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestDead(t *testing.T) {
	t.Parallel()

	both(t, "has all there is to know of the message, byte for byte", func(
		t *testing.T, db *testdb.DB, opts ...inbox.Option,
	) {
		s := newStation(t, db, append(opts, inbox.WithSource(func(*message.Message) string { return "shop\x00" }))...)
		s.handle = func(_ int, msg *message.Message) ([]*message.Message, error) {
			msg.Metadata.Set("scratch", "of the handler")
			msg.UUID, msg.Payload = "", nil

			return nil, errRefused
		}
		s.start(t)

		before := time.Now().Add(-time.Second)
		payload := message.Payload("\x00\xff\xfe payload \"of\" 'bytes' {}\n")
		metadata := message.Metadata{
			"event_id": "order-1 \x00\xff", "event_type": "placed", "": "no name", "odd \x00\xff": "\x00\xff\r\n", "empty": "",
		}
		msg := message.NewMessage("uuid \x00 1", payload)
		msg.Metadata = metadata
		s.deliver(t, msg)

		letter := s.requireDead(t, "order-1 \x00\xff")[0]
		ev := inbox.Event{Consumer: billing, Source: "shop\x00", ID: "order-1 \x00\xff", Type: "placed"}
		require.Equal(t, "event", letter.Event, ev)
		require.Equal(t, "key", letter.Key, inbox.KeyOf(ev))
		require.Equal(t, "state", letter.State, inbox.StateDead)
		require.Equal(t, "topic", letter.Topic, orders)
		require.Equal(t, "attempts", letter.Attempts, n)
		require.Equal(t, "error", letter.LastError, errRefused.Error())
		require.Equal(t, "UUID", letter.Message.UUID, "uuid \x00 1")
		require.Equal(t, "payload", letter.Message.Payload, payload)
		require.Equal(t, "metadata", letter.Message.Metadata, metadata)

		for what, at := range map[string]time.Time{"received": letter.ReceivedAt, "dead": letter.DeadAt} {
			if at.Before(before) || at.After(time.Now().Add(time.Second)) {
				t.Errorf("%s at %s", what, at)
			}
		}

		require.Equal(t, "times of the living", []bool{letter.ProcessedAt.IsZero(), letter.NextAttemptAt.IsZero()}, []bool{true, true})
	})

	both(t, "has the event's time, when there is one", func(t *testing.T, db *testdb.DB, opts ...inbox.Option) {
		at := time.Date(2026, 2, 3, 4, 5, 6, 7_000_000, time.UTC)
		s := newStation(t, db, append(opts, inbox.WithEventTime(func(*message.Message) (time.Time, bool) { return at, true }))...)
		s.handle = failing(n)
		s.start(t)

		s.deliver(t, newOrder("order-1"))

		letter := s.requireDead(t, "order-1")[0]
		require.Equal(t, "time", letter.Event.Time, at)
		require.Equal(t, "key", letter.Key, inbox.KeyOf(letter.Event))
		s.requeue(t, letter)
		require.Eventually(t, "it is handled", func() bool { return s.told.processed.of("order-1") == 1 })
	})

	forEachEngine(t, "lists the oldest first, up to a limit, with statistics beside it", func(t *testing.T, db *testdb.DB) {
		s := newStation(t, db, inbox.WithMaxAttempts(1))
		s.handle = failing(always)
		s.start(t)

		for i := range 5 {
			s.deliver(t, newOrder(fmt.Sprint("order-", i)))
		}

		s.requireDead(t, "order-0", "order-1", "order-2", "order-3", "order-4")

		first, err := s.inbox.Dead(t.Context(), 2)
		require.OK(t, err)
		require.Equal(t, "first", []string{first[0].Event.ID, first[1].Event.ID}, []string{"order-0", "order-1"})
		require.Equal(t, "listed", len(first), 2)

		stats, err := s.inbox.Stats(t.Context())
		require.OK(t, err)
		require.Equal(t, "stats", stats.Consumers, []inbox.ConsumerStats{{Consumer: billing, Dead: 5}})
	})

	forEachEngine(t, "with a limit below 1 is an error", func(t *testing.T, db *testdb.DB) {
		ib := db.New(t)

		for _, limit := range []int{0, -1} {
			_, err := ib.Dead(t.Context(), limit)
			require.ErrorNames(t, err, "limit", fmt.Sprint(limit))
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		opts  []inbox.Option
		words []string
	}{
		"a crash guard without a number of attempts": {
			[]inbox.Option{inbox.WithCrashGuard()}, []string{"WithCrashGuard", "WithMaxAttempts"},
		},
		"no attempts":       {[]inbox.Option{inbox.WithMaxAttempts(0)}, []string{"WithMaxAttempts", "0"}},
		"negative attempts": {[]inbox.Option{inbox.WithMaxAttempts(-1)}, []string{"WithMaxAttempts", "-1"}},
	} {
		t.Run(name+" are refused", func(t *testing.T) {
			t.Parallel()

			_, err := inbox.New(testdb.Open(t, testdb.SQLite).DB, inbox.SQLite, test.opts...)
			require.ErrorNames(t, err, test.words...)
		})
	}
}
