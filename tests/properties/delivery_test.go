package properties_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// event is an id for a consumer, both by their index.
type event struct {
	consumer, id int
}

// outcome is how a handler ends.
type outcome int

const (
	succeeds outcome = iota
	returnsOutputs
	ignoresCancellation
	undoesSavepoint
	commitsItself // lastly, of those that leave an effect
	rollsBackItself
	fails
	failsWithOutputs
	panics
	skips
	obeysCancellation
	swallowsSQLError
	outcomes
)

func (o outcome) String() string {
	return [...]string{
		"succeeds", "returns outputs", "ignores cancellation", "undoes a savepoint", "commits itself", "rolls back itself", "fails",
		"fails with outputs", "panics", "skips", "obeys cancellation", "swallows an SQL error",
	}[o]
}

func (o outcome) leavesEffect() bool { return o <= commitsItself }

var errHandler = errors.New("the handler failed")

// delivery is one message, and what became of it.
type delivery struct {
	event   event
	process int
	outcome outcome
	attempt string

	runs      int // of the handler
	committed int // commits that the handler was told of
	made      []string
	returned  []string
	err       error
	panicked  any
}

func (d *delivery) String() string {
	return fmt.Sprintf("{%s: process %d, consumer %d, event %d, handler %s: %d runs, %d commits, outputs %d, error %v, panic %v}",
		d.attempt, d.process, d.event.consumer, d.event.id, d.outcome, d.runs, d.committed, len(d.returned), d.err, d.panicked)
}

func (d *delivery) run(m *machine) {
	defer func() { d.panicked = recover() }()

	msg := message.NewMessage(m.ids[d.event.id], nil)
	msg.Metadata.Set("consumer", consumers[d.event.consumer])

	if d.outcome == ignoresCancellation || d.outcome == obeysCancellation {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		msg.SetContext(ctx)
	}

	out, err := m.processes[d.process].Middleware(func(msg *message.Message) ([]*message.Message, error) {
		d.runs++

		return d.handle(m, msg)
	})(msg)
	d.returned, d.err = uuids(out), err
}

func (d *delivery) handle(m *machine, msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()

	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return nil, errors.New("no transaction")
	}

	if _, err := tx.Exec(m.insert, d.effect()); err != nil {
		return nil, err
	}

	inbox.AfterCommit(ctx, func(context.Context) { d.committed++ })

	out := []*message.Message{message.NewMessage(watermill.NewUUID(), nil), message.NewMessage(watermill.NewUUID(), []byte("x"))}

	switch d.outcome {
	case returnsOutputs:
		d.made = uuids(out)

		return out, nil
	case undoesSavepoint:
		err := inbox.InTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.Exec(m.insert, d.effect()+" undone")

			return errors.Join(err, errHandler)
		})
		if !errors.Is(err, errHandler) {
			return nil, fmt.Errorf("InTx: %w", err)
		}
	case commitsItself:
		err := tx.Commit()
		if err == nil {
			d.committed++
		}

		return nil, err
	case rollsBackItself:
		return nil, tx.Rollback()
	case fails:
		return nil, fmt.Errorf("wrapped: %w", errHandler)
	case failsWithOutputs:
		return out, errHandler
	case panics:
		panic(errHandler)
	case skips:
		return out, fmt.Errorf("not for me: %w", inbox.ErrSkip)
	case obeysCancellation:
		return nil, ctx.Err()
	case swallowsSQLError:
		_, _ = tx.Exec("SELECT 1/0")
	}

	return nil, nil
}

// effect is what the handler writes.
func (d *delivery) effect() string {
	return fmt.Sprintf("%s %d %s", consumers[d.event.consumer], d.event.id, d.attempt)
}

func uuids(messages []*message.Message) []string {
	var ids []string
	for _, msg := range messages {
		ids = append(ids, msg.UUID)
	}

	return ids
}
