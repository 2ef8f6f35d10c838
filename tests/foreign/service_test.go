package foreign_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// handled is what the handler got to see.
type handled struct {
	event inbox.Event
	msg   *message.Message
}

// service has an inbox and one handler behind it, which writes a row for each message that it handles.
type service struct {
	db    *testdb.DB
	inbox *inbox.Inbox
	log   watermill.LoggerAdapter
	// seen gets every message that was handled, in order.
	seen chan handled
	// effect names the row that the handler writes; by default it is the payload.
	effect func(msg *message.Message) string
	// fail may fail the handler. Optional.
	fail func(msg *message.Message) error

	processed, duplicates atomic.Int64
}

func newService(t *testing.T, eventID func(*message.Message) string) *service {
	t.Helper()

	s := &service{db: testdb.Open(t, testdb.PQ), log: newLog(t), seen: make(chan handled, 100)}
	s.effect = func(msg *message.Message) string { return string(msg.Payload) }
	s.db.SetMaxOpenConns(4)
	s.db.EffectsTable(t)

	opts := []inbox.Option{inbox.WithLogger(s.log), inbox.WithHooks(inbox.Hooks{
		Processed: func(context.Context, inbox.Event) { s.processed.Add(1) },
		Duplicate: func(context.Context, inbox.Event) { s.duplicates.Add(1) },
	})}
	if eventID != nil {
		opts = append(opts, inbox.WithEventID(eventID))
	}

	s.inbox = s.db.New(t, opts...)

	return s
}

// start runs the service on a topic until the test ends or calls stop. The middlewares are outside of the inbox.
func (s *service) start(t *testing.T, on *topic, group string, around ...message.HandlerMiddleware) (stop func()) {
	t.Helper()

	sub, err := on.subscriber(group, s.log)
	if err != nil {
		t.Fatal(err)
	}

	router, err := message.NewRouter(message.RouterConfig{}, s.log)
	if err != nil {
		t.Fatal(err)
	}

	router.AddMiddleware(around...)
	router.AddMiddleware(s.inbox.Middleware)
	router.AddConsumerHandler("billing", on.name, sub, s.handle)

	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()

	select {
	case <-router.Running():
	case err := <-done:
		t.Fatal(err)
	}

	stop = sync.OnceFunc(func() {
		mustClose(t, router)
		mustClose(t, sub)

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)

	return stop
}

func (s *service) handle(msg *message.Message) error {
	tx, ok := inbox.TxFromContext(msg.Context())
	if !ok {
		return errors.New("no transaction in the context")
	}

	event, ok := inbox.EventFromContext(msg.Context())
	if !ok {
		return errors.New("no event in the context")
	}

	_, err := tx.ExecContext(msg.Context(), "INSERT INTO "+s.db.Table("effects")+" (event) VALUES ($1)", s.effect(msg))
	if err != nil {
		return err
	}

	if s.fail != nil {
		if err := s.fail(msg); err != nil {
			return err
		}
	}

	s.seen <- handled{event, msg.Copy()}

	return nil
}

func (s *service) await(t *testing.T, processed, duplicates int64) {
	t.Helper()
	await(t, "events and duplicates", func() bool {
		return s.processed.Load() >= processed && s.duplicates.Load() >= duplicates
	})

	if p, d := s.processed.Load(), s.duplicates.Load(); p != processed || d != duplicates {
		t.Fatalf("%d events and %d duplicates, want %d and %d", p, d, processed, duplicates)
	}
}

// deliverTwice nacks every message once after the inbox has committed it, as if the ack had been lost.
func deliverTwice() message.HandlerMiddleware {
	var nacked sync.Map

	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			out, err := h(msg)
			if err != nil {
				return out, err
			}

			if _, before := nacked.LoadOrStore(string(msg.Payload), true); !before {
				return nil, errors.New("delivered again on purpose")
			}

			return out, nil
		}
	}
}

// buffer keeps a log for a test that fails. It outlives the test, unlike t.Log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.b.Write(p)
}

func (b *buffer) end() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	const most = 8 << 10

	return string(b.b.Bytes()[max(0, b.b.Len()-most):])
}

func newLog(t *testing.T) watermill.LoggerAdapter {
	t.Helper()

	var b buffer

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log:\n%s", b.end())
		}
	})

	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&b, nil)))
}
