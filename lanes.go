package inbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"slices"
	"strconv"
)

// lane identifies the messages of one queue that share an ordering key; 0 is none.
//
// Of the messages of a lane that are not dead, one is active, which is to say that it has a due_at: the one that was first, by
// seq, when there was none. The others are parked. Whoever changes that holds the lane's lock.
type lane int64

// laneOf merges two lanes once in 2^63 pairs, which costs them some concurrency and nothing else.
func laneOf(queue Key, orderingKey string) lane {
	if orderingKey == "" {
		return 0
	}

	hash := sha256.Sum256(appendPrefixed(appendPrefixed(nil, queue[:]), orderingKey))

	return lane(binary.BigEndian.Uint64(hash[:])>>1) | 1
}

func (l lane) text() string {
	if l == 0 {
		return ""
	}

	return strconv.FormatInt(int64(l), 10)
}

// lock spreads lanes over a bounded number of locks.
func (l lane) lock() int {
	const locks = 256

	return int(l>>1) % locks
}

// lanesOf returns the different lanes of items, without none.
func lanesOf[T any](items []T, of func(T) lane) (lanes []lane) {
	seen := make(map[lane]bool)

	for _, item := range items {
		if l := of(item); l != 0 && !seen[l] {
			seen[l] = true
			lanes = append(lanes, l)
		}
	}

	return lanes
}

// lockLanes keeps others from changing what is first in the lanes. The locks are sorted against deadlocks.
func (r *repository) lockLanes(ctx context.Context, tx *sql.Tx, lanes []lane) error {
	if len(lanes) == 0 || r.queries.lockLanes == "" {
		return nil
	}

	locks := make([]int, len(lanes))
	for i, l := range lanes {
		locks[i] = l.lock()
	}

	slices.Sort(locks)

	var list column
	for _, lock := range slices.Compact(locks) {
		list = append(list, strconv.Itoa(lock))
	}

	_, err := r.batchStmts.exec(ctx, tx, r.queries.lockLanes, r.engine.listArgs(list)...)

	return err
}

// promote makes the first message of each lane due where none is. It needs their locks.
func (r *repository) promote(ctx context.Context, tx *sql.Tx, lanes []lane) error {
	if len(lanes) == 0 {
		return nil
	}

	_, err := r.batchStmts.exec(ctx, tx, r.queries.promote, r.engine.listArgs(laneColumn(lanes))...)

	return err
}

// lanesOfKeys returns the lanes of stored messages.
func (r *repository) lanesOfKeys(ctx context.Context, tx *sql.Tx, keys column) (lanes []lane, err error) {
	rows, err := tx.QueryContext(ctx, r.queries.lanesOf, r.engine.listArgs(keys)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	for rows.Next() {
		var l lane
		if err := rows.Scan(&l); err != nil {
			return nil, err
		}

		lanes = append(lanes, l)
	}

	return lanes, rows.Err()
}

func laneColumn(lanes []lane) column {
	texts := make(column, len(lanes))
	for i, l := range lanes {
		texts[i] = l.text()
	}

	return texts
}
