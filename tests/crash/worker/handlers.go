package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// handlers are the consumers. Their messages carry the name of the event as payload.
type handlers struct {
	db          *sql.DB
	once, plain string // tables
	trouble     int
	released    chan struct{}
	release     func()

	mu     sync.Mutex
	random *rand.Rand
}

func newHandlers(db *sql.DB, set settings) *handlers {
	released := make(chan struct{})

	return &handlers{
		db:       db,
		once:     fmt.Sprintf(`INSERT INTO %q."once" (event) VALUES ($1)`, set.schema),
		plain:    fmt.Sprintf(`INSERT INTO %q."plain" (event) VALUES ($1)`, set.schema),
		trouble:  set.trouble,
		released: released,
		release:  sync.OnceFunc(func() { close(released) }),
		random:   rand.New(rand.NewPCG(set.seed, 0)),
	}
}

func (h *handlers) named(name string) message.NoPublishHandlerFunc {
	handle := map[string]func(msg *message.Message) error{
		"once":  h.writeOnce,
		"plain": h.writePlain,
		"hold":  h.hold,
		"gate":  h.gate,
		"noop":  func(*message.Message) error { return nil },
	}[name]

	return func(msg *message.Message) error {
		tell(name, "called")

		ctx := msg.Context()
		err := handle(msg)

		switch {
		case errors.Is(err, inbox.ErrLeaseLost), errors.Is(context.Cause(ctx), inbox.ErrLeaseLost):
			tell(name, "lost")
		case err != nil:
			tell(name, "failed")
		default:
			tell(name, "done")
		}

		return err
	}
}

var errTrouble = errors.New("trouble")

// writeOnce may fail before, in and after the transaction that makes its effect and completes the message.
func (h *handlers) writeOnce(msg *message.Message) error {
	if err := h.work(msg.Context()); err != nil {
		return err
	}

	err := inbox.InTx(msg.Context(), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(msg.Context(), h.once, string(msg.Payload)); err != nil {
			return err
		}

		return h.work(msg.Context())
	})
	if err != nil {
		return err
	}

	return h.fail()
}

// writePlain makes its effect outside of any transaction, so the effect stays when the handler fails after it.
func (h *handlers) writePlain(msg *message.Message) error {
	if err := h.work(msg.Context()); err != nil {
		return err
	}

	if _, err := h.db.ExecContext(context.WithoutCancel(msg.Context()), h.plain, string(msg.Payload)); err != nil {
		return err
	}

	return h.fail()
}

// hold makes its effect once it is released, if the message is still its own.
func (h *handlers) hold(msg *message.Message) error {
	select {
	case <-h.released:
		return h.writeOnce(msg)
	case <-msg.Context().Done():
		return context.Cause(msg.Context())
	}
}

// gate needs no database.
func (h *handlers) gate(msg *message.Message) error {
	select {
	case <-h.released:
		return nil
	case <-msg.Context().Done():
		return context.Cause(msg.Context())
	}
}

// work takes some time, now and then, and may fail.
func (h *handlers) work(ctx context.Context) error {
	if h.trouble == 0 {
		return nil
	}

	if h.chance(100) {
		select {
		case <-time.After(time.Duration(h.number(50)) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}

	return h.fail()
}

// fail returns an error or panics, if it is the call's lot.
func (h *handlers) fail() error {
	if !h.chance(h.trouble) {
		return nil
	}

	if h.chance(200) {
		panic(errTrouble)
	}

	return errTrouble
}

func (h *handlers) chance(of1000 int) bool { return h.number(1000) < of1000 }

func (h *handlers) number(below int) int {
	h.mu.Lock()
	defer h.mu.Unlock()

	return h.random.IntN(below)
}
