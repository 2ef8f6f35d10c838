package conformance_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// returning is a worker whose every run returns the same messages.
func returning(db *testdb.DB, outputs ...*message.Message) *worker {
	w := newWorker(db)
	w.then = func(int, *message.Message) ([]*message.Message, error) { return outputs, nil }

	return w
}

func requireSameMessages(t testing.TB, got, want []*message.Message) {
	t.Helper()
	require.Equal(t, "uuids", uuids(got), uuids(want))

	for i := range want {
		require.Equal(t, "payload of "+want[i].UUID, string(got[i].Payload), string(want[i].Payload))

		if !maps.Equal(got[i].Metadata, want[i].Metadata) {
			t.Errorf("metadata of %s: got %q, want %q", want[i].UUID, got[i].Metadata, want[i].Metadata)
		}
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()

	odd := []*message.Message{
		{UUID: "plain", Metadata: message.Metadata{"a": "1", "b": "2"}, Payload: []byte(`{"n":1}`)},
		{UUID: "", Metadata: message.Metadata{"uuid": "empty"}, Payload: []byte("x")},
		{UUID: "nul", Metadata: message.Metadata{"k\x00": "v\x00v", "": "empty key", "empty value": ""}, Payload: []byte("a\x00b")},
		{UUID: "invalid \xff\xfe UTF-8", Metadata: message.Metadata{"\xc3\x28": "\xff"}, Payload: []byte{0xff, 0x00, 0xc0}},
		{UUID: "no payload", Metadata: message.Metadata{"a": "1"}},
		{UUID: "no metadata", Payload: []byte("x")},
		{UUID: "large", Metadata: message.Metadata{"a": strings.Repeat("ü", 1<<16)}, Payload: []byte(strings.Repeat("\x00\\'\"", 1<<18))},
	}

	forEachEngine(t, "are replayed byte for byte in order and the handler is not run", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), returning(db, odd...)

		for range 4 {
			outputs, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			requireSameMessages(t, outputs, odd)
		}

		w.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "are those of their own event and consumer", func(t *testing.T, db *testdb.DB) {
		of := func(name string) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				return message.Messages{delivery(name + msg.UUID)}, nil
			}
		}

		for range 3 {
			for _, name := range []string{"a", "b"} {
				for _, id := range []string{"1", "2"} {
					outputs, err := deliver(newInbox(t, db, consumer(name)), of(name), delivery(id))
					require.OK(t, err)
					require.Equal(t, "outputs", uuids(outputs), []string{name + id})
				}
			}
		}
	})

	// MassTransit 3791, 4990
	forEachEngine(t, "whose publishing fails after the commit are published by the redelivery", func(t *testing.T, db *testdb.DB) {
		ib, s, w := db.New(t), newStation(t), newWorker(db)
		w.then = func(int, *message.Message) ([]*message.Message, error) {
			return message.Messages{message.NewMessage(newUUID(), []byte("1")), message.NewMessage(newUUID(), []byte("2"))}, nil
		}

		publisher := &flaky{Publisher: s.pubsub, failures: 3, err: errors.New("broker is away")}
		s.AddMiddleware(ib.Middleware)
		s.AddHandler("billing", "orders", s.pubsub, "invoices", publisher, w.handle)
		invoices := s.collect(t, "invoices")
		s.start(t)

		s.publish(t, "orders", delivery("e1"))
		first := invoices()
		require.Equal(t, "number of outputs", len(first), 2)

		s.publish(t, "orders", delivery("e1")) // at least once: a duplicate publishes again, with the same ids
		requireSameMessages(t, invoices(), append(first, first...))
		w.requireRuns(t, 1)
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "are known to concurrent duplicates too", func(t *testing.T, db *testdb.DB) {
		db, spy := spied(t, db)
		ib, first := newInbox(t, db), newGate(db)
		wait := first.then
		first.then = func(run int, msg *message.Message) ([]*message.Message, error) {
			_, err := wait(run, msg)

			return message.Messages{delivery("o1")}, err
		}

		firstDone := deliverAsync(ib, first.handle, delivery("e1"))
		require.Await(t, "the first handler", first.entered)

		secondDone := deliverAsync(ib, first.handle, delivery("e1"))
		awaitClaim(t, db, spy, 1)

		first.leave <- nil

		for _, done := range []<-chan result{firstDone, secondDone} {
			r := require.Await(t, "a delivery", done)
			require.OK(t, r.err)
			require.Equal(t, "outputs", uuids(r.outputs), []string{"o1"})
		}

		first.requireRuns(t, 1)
	})

	forEachEngine(t, "with a nil message among them are an error and redelivery runs", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)
		w.then = func(run int, _ *message.Message) ([]*message.Message, error) {
			if run == 1 {
				return message.Messages{delivery("o1"), nil}, nil
			}

			return message.Messages{delivery("o1")}, nil
		}

		_, err := deliver(ib, w.handle, delivery("e1"))
		require.ErrorNames(t, err, "nil")
		db.RequireOnce(t)
		requireStoredOutputs(t, db, 0)

		outputs, err := deliver(ib, w.handle, delivery("e1"))
		require.OK(t, err)
		require.Equal(t, "outputs", uuids(outputs), []string{"o1"})
		db.RequireOnce(t, "e1")
	})

	forEachEngine(t, "that are an empty list store nothing", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), returning(db, message.Messages{}...)

		for range 2 {
			outputs, err := deliver(ib, w.handle, delivery("e1"))
			require.OK(t, err)
			require.Equal(t, "outputs", len(outputs), 0)
		}

		requireStoredOutputs(t, db, 0)
	})

	for name, opts := range map[string][]inbox.Option{"": nil, " with WithTxTimeout": {inbox.WithTxTimeout(require.Patience)}} {
		forEachEngine(t, "of a passthrough handler are the incoming message"+name, func(t *testing.T, db *testdb.DB) {
			ib, s := db.New(t, opts...), newStation(t)
			s.AddMiddleware(ib.Middleware)
			s.AddHandler("copy", "in", s.pubsub, "out", s.pubsub, message.PassthroughHandler)
			out := s.collect(t, "out")
			s.start(t)

			for range 2 {
				msg := delivery("e1")
				msg.Metadata.Set("k", "v")
				s.publish(t, "in", msg)
			}

			require.Equal(t, "published", uuids(out()), []string{"e1", "e1"})
			require.Equal(t, "metadata", out()[1].Metadata, message.Metadata{"k": "v"})
			require.Equal(t, "payload", string(out()[1].Payload), "payload of e1")
		})

		forEachEngine(t, "made with the handler's context can be published after it"+name, func(t *testing.T, db *testdb.DB) {
			type key struct{}

			msg := delivery("e1")
			msg.SetContext(context.WithValue(context.Background(), key{}, "kept"))

			outputs, err := deliver(newInbox(t, db, opts...), func(msg *message.Message) ([]*message.Message, error) {
				return message.Messages{message.NewMessageWithContext(msg.Context(), "o1", nil)}, nil
			}, msg)
			require.OK(t, err)

			ctx := outputs[0].Context()
			require.OK(t, ctx.Err())
			require.Equal(t, "value", ctx.Value(key{}), any("kept"))

			if _, ok := ctx.Deadline(); ok {
				t.Error("the output is bound to the transaction's deadline")
			}

			if _, ok := inbox.TxFromContext(ctx); ok {
				t.Error("the output carries a transaction that is over")
			}
		})
	}
}
