package faults_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/faults/faultdriver"
)

// routerValues returns a context with what a router tells about a handler with a publish topic.
func routerValues(t *testing.T) context.Context {
	t.Helper()

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}

	pubSub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	if err := pubSub.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)); err != nil {
		t.Fatal(err)
	}

	values := make(chan context.Context, 1)

	router.AddHandler("billing", "orders", pubSub, "invoices", pubSub, func(msg *message.Message) ([]*message.Message, error) {
		values <- context.WithoutCancel(msg.Context())

		return nil, nil
	})

	done := make(chan error)
	go func() { done <- router.Run(context.Background()) }()

	ctx := <-values

	if err := errors.Join(router.Close(), <-done); err != nil {
		t.Fatal(err)
	}

	return ctx
}

// process is what a process has: connections and an inbox.
type process struct {
	db    *sql.DB
	inbox *inbox.Inbox
}

func (s *stage) start() process {
	s.t.Helper()

	opts := []inbox.Option{inbox.WithTable(s.db.Inbox())}
	if s.unprepared {
		opts = append(opts, inbox.WithoutPreparedStatements())
	}

	if s.outbox {
		opts = append(opts, inbox.WithOutbox(func(tx *sql.Tx) (message.Publisher, error) { return outbox{s, tx}, nil }))
	}

	db := sql.OpenDB(s.connector)

	ib, err := inbox.New(db, s.db.Engine.Dialect, opts...)
	if err != nil {
		s.t.Fatal(err)
	}

	return process{db, ib}
}

func (p process) stop(t *testing.T) {
	t.Helper()

	if n := p.db.Stats().InUse; n > 0 {
		t.Errorf("%d connections were not given back", n)
	}

	_ = p.db.Close() // of a connection that a fault had broken
}

// run delivers a new event until it is acked, once more after that, and then another event. It returns how many
// boundaries there were until the first ack.
func (s *stage) run(faults ...faultdriver.Fault) (boundaries int) {
	s.t.Helper()

	event := s.newEvent()
	sent := &outputs{}

	p := s.start()
	defer func() { p.stop(s.t) }()

	s.connector.Arm()
	s.prepare(p, event, sent)

	if !s.warm {
		p.stop(s.t)
		p = s.start()
	}

	s.connector.Arm(faults...)

	fail := func(format string, args ...any) {
		s.t.Helper()
		s.t.Fatalf("event %s, faults %v: %s\nboundaries: %q", event, faults, fmt.Sprintf(format, args...), s.connector.Passed())
	}

	// A fault costs one delivery at most.
	for deliveries := 1; ; deliveries++ {
		before := len(s.connector.Fired())
		err := s.deliver(p, event, sent)
		fired := s.connector.Fired()[before:]

		if err == nil {
			if slices.Contains(fired, "commit") {
				fail("acked without knowing that the commit succeeded")
			}

			break
		}

		if len(fired) == 0 || !errors.Is(err, faultdriver.ErrInjected) && !errors.Is(err, driver.ErrBadConn) {
			fail("delivery %d failed for another reason: %v", deliveries, err)
		}

		if s.restart {
			p.stop(s.t)
			p = s.start()
		}
	}

	boundaries = len(s.connector.Passed())

	if n := len(s.connector.Fired()); n != len(faults) {
		fail("%d faults happened", n)
	}

	if err := s.deliver(p, event, sent); err != nil {
		fail("redelivery: %v", err)
	}

	if err := s.deliver(p, s.newEvent(), &outputs{}); err != nil {
		fail("next event: %v", err)
	}

	if err := sent.check(s.outbox); err != nil {
		fail("%v", err)
	}

	return boundaries
}

// prepare does what happened before the faults.
func (s *stage) prepare(p process, event string, sent *outputs) {
	s.t.Helper()

	switch {
	case s.duplicate:
	case s.warm:
		event, sent = s.newEvent(), &outputs{}
	default:
		return
	}

	// The second time is a duplicate, which makes the inbox expect more of them.
	for range 2 {
		if err := s.deliver(p, event, sent); err != nil {
			s.t.Fatalf("no fault: %v", err)
		}
	}
}

// deliver is one delivery of an event: a message of its own, as brokers make it.
func (s *stage) deliver(p process, event string, sent *outputs) error {
	msg := message.NewMessage(event, []byte("payload"))
	msg.SetContext(s.values)

	out, err := p.inbox.Middleware(s.handle)(msg)
	if err == nil {
		sent.sets = append(sent.sets, out)
	} else if len(out) > 0 {
		return fmt.Errorf("outputs in spite of an error: %w", err)
	}

	return err
}

// outputs are what a router would have published, a set for each delivery that ended well.
type outputs struct {
	sets []message.Messages
}

// check compares the sets, every byte of them.
func (o *outputs) check(outbox bool) error {
	for _, set := range o.sets {
		if outbox {
			if len(set) > 0 {
				return fmt.Errorf("%d outputs went past the outbox", len(set))
			}

			continue
		}

		if len(set) != outputsPerEvent {
			return fmt.Errorf("%d outputs were sent", len(set))
		}

		for i, msg := range set {
			first := o.sets[0][i]
			if msg.UUID != first.UUID || !bytes.Equal(msg.Payload, first.Payload) || !maps.Equal(msg.Metadata, first.Metadata) {
				return fmt.Errorf("output %d was sent as %s and as %s", i, first.UUID, msg.UUID)
			}
		}
	}

	return nil
}
