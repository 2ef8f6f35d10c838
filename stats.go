package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// ConsumerStats counts the unfinished events of one consumer by their state: those that are not processed, and those of
// stored messages with outputs that are not published yet.
type ConsumerStats struct {
	Consumer                        string
	Received, Leased, Waiting, Dead int64
	// OldestUnprocessed is how long ago the oldest of them was received that is not dead.
	OldestUnprocessed time.Duration
}

// Stats is what there is to do.
type Stats struct {
	// Consumers that have unfinished events or dead letters, ordered by name.
	Consumers []ConsumerStats
}

// Stats counts what is stored and not processed. It reads every such event.
func (ib *Inbox) Stats(ctx context.Context) (Stats, error) {
	stats, err := ib.repo.stats(ctx)
	if err != nil {
		return Stats{}, fmt.Errorf("inbox: counting: %w", err)
	}

	return stats, nil
}

// maxStale bounds what Stale returns, since entries carry their messages.
const maxStale = 1000

// Stale lists events that were received longer ago than olderThan and are neither processed nor dead, the oldest first,
// 1,000 of them at most.
func (ib *Inbox) Stale(ctx context.Context, olderThan time.Duration) ([]Entry, error) {
	if olderThan < 0 {
		return nil, fmt.Errorf("inbox: age %s of stale events must not be negative", olderThan)
	}

	entries, err := ib.repo.entries(ctx, ib.repo.queries.listStale, olderThan.Milliseconds(), maxStale)
	if err != nil {
		return nil, fmt.Errorf("inbox: listing stale events: %w", err)
	}

	return entries, nil
}

func (r *repository) stats(ctx context.Context) (stats Stats, err error) {
	err = r.inTx(ctx, func(tx *sql.Tx) error {
		stats = Stats{}

		rows, err := tx.QueryContext(ctx, r.queries.stats)
		if err != nil {
			return r.explain(ctx, tx, err)
		}
		defer rows.Close()

		for rows.Next() {
			var (
				c      ConsumerStats
				oldest int64
			)

			if err := rows.Scan(&c.Consumer, &c.Received, &c.Leased, &c.Waiting, &c.Dead, &oldest); err != nil {
				return err
			}

			c.OldestUnprocessed = time.Duration(oldest) * time.Millisecond
			stats.Consumers = append(stats.Consumers, c)
		}

		return rows.Err()
	})

	return stats, err
}
