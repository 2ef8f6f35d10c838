package inbox

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
)

// lookUp finds out with one query outside of any transaction whether the event was handled before, while the event
// before it was. Duplicates come in runs, as when a consumer group is rewound, and the query takes one round trip where a
// claim takes three. It decides nothing but that: what it does not find is claimed.
//
// Not without prepared statements: behind a transaction-pooling proxy, lib/pq's two round trips for an unprepared query
// may reach two server connections when no transaction holds them together, and then run what another client left.
func (ib *Inbox) lookUp(ctx context.Context, s *scope) (outputs []*message.Message, known bool, err error) {
	if ib.unprepared || s.delivery != nil || !ib.repeating.Load() {
		return nil, false, nil
	}

	if !ib.repo.known(ctx, s.key) {
		ib.repeating.Store(false)

		return nil, false, nil
	}

	outputs, err = ib.storedOutputs(ctx, nil, s)
	if err != nil {
		return nil, false, err
	}

	ib.skipped(ctx, s.event)

	return outputs, true, nil
}

// replay returns the outputs of an event whose claim found it handled before, and ends the transaction.
func (ib *Inbox) replay(ctx context.Context, s *scope) ([]*message.Message, error) {
	outputs, err := ib.storedOutputs(ctx, s.tx.Tx, s)
	if err != nil {
		return nil, err
	}

	s.release()

	if s.delivery != nil {
		s.delivery.commit(len(outputs) > 0)

		return outputs, nil
	}

	ib.repeating.Store(true)
	ib.skipped(ctx, s.event)

	return outputs, nil
}

// storedOutputs reads in tx, or outside of any transaction when tx is nil.
func (ib *Inbox) storedOutputs(ctx context.Context, tx *sql.Tx, s *scope) ([]*message.Message, error) {
	if !mayHaveOutputs(ctx) {
		return nil, nil
	}

	encoded, err := ib.repo.loadOutputs(ctx, tx, s.key)
	if err != nil {
		return nil, s.failed(ctx, "loading the outputs of", err)
	}

	outputs, err := decodeMessages(encoded)
	if err != nil {
		return nil, s.failed(ctx, "decoding the outputs of", err)
	}

	return outputs, nil
}

func (ib *Inbox) skipped(ctx context.Context, ev Event) {
	ib.logger.Debug("Inbox skipped a duplicate", fieldsOf(ev))
	ib.callHook(ctx, ib.hooks.Duplicate, ev)
}
