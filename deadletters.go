package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// State is how far an event has come.
type State string

// The states of an event. An event that is being handled in same-transaction mode has none yet.
const (
	StateReceived  State = "received"  // stored, and not attempted yet
	StateLeased    State = "leased"    // in the hands of a worker
	StateWaiting   State = "waiting"   // for its next attempt
	StateDead      State = "dead"      // out of attempts, see WithMaxAttempts
	StateProcessed State = "processed" // done
)

// Entry is an event on record.
type Entry struct {
	Key Key
	// Event has its strings as they were received where the message is stored, and printable ones of 255 bytes at most
	// elsewhere.
	Event Event
	State State
	// Topic is where the message came from, "" where no message is stored.
	Topic string
	// ReceivedAt is when the event was stored, or processed in same-transaction mode. ProcessedAt is zero when it was not.
	ReceivedAt, ProcessedAt time.Time
	Attempts                int
	// LastError is the last one that the inbox saw, in its middleware or in InTx, printable and of 2,000 bytes at most. What a
	// handler returns outside of both is known to the router only.
	LastError string
	// NextAttemptAt is zero unless the event waits for an attempt, DeadAt unless it is dead.
	NextAttemptAt, DeadAt time.Time
	// Message has UUID, metadata and payload as they were received, nil where no message is stored.
	Message *message.Message
}

// Dead lists dead letters of all consumers, the oldest first, limit of them at most. Each has its message.
func (ib *Inbox) Dead(ctx context.Context, limit int) ([]Entry, error) {
	if limit < 1 {
		return nil, fmt.Errorf("inbox: limit %d of dead letters must be positive", limit)
	}

	entries, err := ib.repo.entries(ctx, ib.repo.queries.listDead, limit)
	if err != nil {
		return nil, fmt.Errorf("inbox: listing dead letters: %w", err)
	}

	return entries, nil
}

// Requeue has dead letters handed out again, with all attempts before them, and returns how many there were under the keys.
// What hands them out is a subscriber of their consumer and topic in any process, [Inbox.Subscriber] or
// [Inbox.Backlog]; in this process at once, elsewhere within a second. A message with an ordering key is the next of its key. In
// same-transaction mode without such a subscriber, a requeued message is handled when its broker delivers it again.
func (ib *Inbox) Requeue(ctx context.Context, keys ...Key) (int64, error) {
	n, err := ib.decideDead(ctx, keys, ib.repo.requeue)
	if err != nil {
		return 0, fmt.Errorf("inbox: requeueing: %w", err)
	}

	ib.running.wake()

	return n, nil
}

// Discard removes the messages of dead letters and returns how many there were under the keys. Their events stay on record as
// processed, so that a redelivery is a duplicate.
func (ib *Inbox) Discard(ctx context.Context, keys ...Key) (int64, error) {
	n, err := ib.decideDead(ctx, keys, ib.repo.discard)
	if err != nil {
		return 0, fmt.Errorf("inbox: discarding: %w", err)
	}

	return n, nil
}

func (ib *Inbox) decideDead(
	ctx context.Context, keys []Key, decide func(context.Context, *sql.Tx, column) (map[Key]bool, error),
) (n int64, err error) {
	if len(keys) == 0 {
		return 0, nil
	}

	list := make(column, len(keys))
	for i, key := range keys {
		list[i] = key.hex()
	}

	err = ib.retryTransient(func() error {
		return ib.repo.inBatch(ctx, func(tx *sql.Tx) error {
			decided, err := decide(ctx, tx, list)
			n = int64(len(decided))

			return err
		})
	}, nil)

	return n, err
}

// requeue puts a message with a lane in front of those that wait in it, but not in front of one that is leased.
func (r *repository) requeue(ctx context.Context, tx *sql.Tx, keys column) (map[Key]bool, error) {
	list := r.engine.listArgs(keys)

	lanes, err := r.lanesOfKeys(ctx, tx, keys)
	if err != nil {
		return nil, err
	}

	if err := r.lockLanes(ctx, tx, lanes); err != nil {
		return nil, err
	}

	requeued, err := r.keys(ctx, tx, r.queries.requeue, list...)
	if err != nil || len(lanes) == 0 {
		return requeued, err
	}

	if _, err := tx.ExecContext(ctx, r.queries.parkActive, r.engine.listArgs(laneColumn(lanes))...); err != nil {
		return nil, err
	}

	return requeued, r.promote(ctx, tx, lanes)
}

func (r *repository) discard(ctx context.Context, tx *sql.Tx, keys column) (map[Key]bool, error) {
	discarded := make(map[Key]bool)

	return discarded, r.follow(ctx, tx, discarded, r.queries.discard, r.engine.listArgs(keys)...)
}

// entries reads what a statement yields: key, consumer, source, event id, event type, state, received, processed, attempts,
// last error, due, dead, message; times in milliseconds since 1970.
func (r *repository) entries(ctx context.Context, query string, args ...any) (entries []Entry, err error) {
	err = r.inTx(ctx, func(tx *sql.Tx) error {
		entries = nil

		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return r.explain(ctx, tx, err)
		}
		defer rows.Close()

		for rows.Next() {
			e, err := scanEntry(rows)
			if err != nil {
				return err
			}

			entries = append(entries, e)
		}

		return rows.Err()
	})

	return entries, err
}

func scanEntry(rows *sql.Rows) (e Entry, err error) {
	var (
		received             int64
		processed, due, dead sql.NullInt64
		data                 []byte
	)

	err = rows.Scan(&e.Key, &e.Event.Consumer, &e.Event.Source, &e.Event.ID, &e.Event.Type, &e.State,
		&received, &processed, &e.Attempts, &e.LastError, &due, &dead, &data)
	if err != nil {
		return e, err
	}

	e.ReceivedAt = time.UnixMilli(received).UTC()
	e.ProcessedAt, e.DeadAt = timeOf(processed), timeOf(dead)

	if e.State == StateWaiting || e.State == StateReceived {
		e.NextAttemptAt = timeOf(due)
	}

	if data == nil {
		return e, nil
	}

	ev, topic, msg, err := decodeStored(data)
	if err != nil {
		e.LastError = errors.Join(errors.New(e.LastError), err).Error()

		return e, nil // a message that cannot be read must not hide the others
	}

	e.Event, e.Topic, e.Message = ev, topic, msg

	return e, nil
}

func timeOf(milliseconds sql.NullInt64) time.Time {
	if !milliseconds.Valid {
		return time.Time{}
	}

	return time.UnixMilli(milliseconds.Int64).UTC()
}
