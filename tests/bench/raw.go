package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/lib/pq"

	"github.com/watermill-inbox/inbox"
)

const rawTable = "bench_raw.inbox"

// byHand writes the rows of the inbox into tables of the same shape, as somebody who knows the database would write it for
// just that: one INSERT for each table, in one transaction, prepared. There is no deduplication, and there are no leases.
type byHand struct {
	db       *sql.DB
	template row
	arrays   func(keys, ids []string, messages [][]byte) []any

	intoLedger, intoPayloads *sql.Stmt
}

// row is what the inbox stored for one event.
type row struct {
	queue, source, id string
	message           []byte
}

func newByHand(ctx context.Context, db *sql.DB, driver string, s store) (*byHand, error) {
	ib, err := inbox.New(db, inbox.Postgres, inbox.WithTable(rawTable))
	if err != nil {
		return nil, err
	}

	if err := ib.Migrate(ctx); err != nil {
		return nil, err
	}

	h := &byHand{db: db, arrays: func(keys, ids []string, messages [][]byte) []any { return []any{keys, ids, messages} }}
	if driver == "pq" {
		h.arrays = func(keys, ids []string, messages [][]byte) []any {
			return []any{pq.Array(keys), pq.Array(ids), pq.ByteaArray(messages)}
		}
	}

	if err := s.prefill(ctx, 1); err != nil {
		return nil, err
	}

	err = db.QueryRowContext(ctx, `SELECT p.queue, l.source, l.event_id, p.message
		FROM `+inboxTable+` AS l JOIN `+inboxTable+`_payloads AS p USING (key) LIMIT 1`).
		Scan(&h.template.queue, &h.template.source, &h.template.id, &h.template.message)
	if err != nil {
		return nil, fmt.Errorf("reading what the inbox stores: %w", err)
	}

	h.intoLedger, err = db.PrepareContext(ctx, `INSERT INTO `+rawTable+` (key, consumer, source, event_id, event_type)
		SELECT key, $3, $4, id, '' FROM unnest($1::uuid[], $2::text[]) AS r (key, id)`)
	if err != nil {
		return nil, err
	}

	h.intoPayloads, err = db.PrepareContext(ctx, `INSERT INTO `+rawTable+`_payloads (key, queue, due_at, attempts, message)
		SELECT key, $3, now(), 0, message FROM unnest($1::uuid[], $2::bytea[]) AS r (key, message)`)

	return h, err
}

func (h *byHand) insert(ctx context.Context, ids []string) error {
	keys, messages := h.rows(ids)
	arrays := h.arrays(keys, ids, messages)

	tx, err := h.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit

	//nolint:sqlclosecheck // closed with the transaction
	_, err = tx.StmtContext(ctx, h.intoLedger).ExecContext(ctx, arrays[0], arrays[1], consumer, h.template.source)
	if err != nil {
		return err
	}

	//nolint:sqlclosecheck // closed with the transaction
	if _, err := tx.StmtContext(ctx, h.intoPayloads).ExecContext(ctx, arrays[0], arrays[2], h.template.queue); err != nil {
		return err
	}

	return tx.Commit()
}

// rows makes of the template what the inbox would store for other events.
func (h *byHand) rows(ids []string) (keys []string, messages [][]byte) {
	for _, id := range ids {
		keys = append(keys, inbox.KeyOf(inbox.Event{Consumer: consumer, Source: h.template.source, ID: id}).String())
		messages = append(messages, bytes.ReplaceAll(h.template.message, []byte(h.template.id), []byte(id)))
	}

	return keys, messages
}
