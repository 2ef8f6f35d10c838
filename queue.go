package inbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// queueOf identifies the stored messages of a consumer's topic.
func queueOf(consumer, topic string) (queue Key) {
	hash := sha256.Sum256(appendPrefixed(appendPrefixed(nil, consumer), topic))
	copy(queue[:], hash[:])

	return queue
}

// term is a lease that its owner gives a number: no two leases of one owner have the same, not even on the same message.
type term struct {
	owner    Key
	number   int64
	duration time.Duration
}

// fence is what a worker knows of its lease on a message: it holds as long as the row has this owner and this number.
type fence struct {
	key   Key
	lease int64
}

// arrival is a message on its way into the table.
type arrival struct {
	key   Key
	event Event
	lane  lane
	msg   *message.Message
	lease bool // leave it leased, if it is new and has no lane
}

// stored says what became of an arrival.
type stored uint8

const (
	storedBefore stored = iota // a duplicate
	storedDue                  // for anybody to lease
	storedLeased               // by the one who stored it
)

// leased is a message that was claimed.
type leased struct {
	fence
	lane      lane
	attempts  int
	data      []byte
	processed bool // only its outputs are still to be published
	outputs   bool
	seq       int64
}

// fate is what becomes of a leased message.
type fate string

const (
	fateDone  fate = "done"  // processed, or skipped
	fateRetry fate = "retry" // due again after a delay
	fateDead  fate = "dead"
	fateOut   fate = "out"  // dead, and this attempt was one too many
	fateBack  fate = "back" // due now, as if it had never been leased
)

// verdict decides the fate of one leased message.
type verdict struct {
	fence
	lane  lane
	fate  fate
	delay time.Duration
	err   string

	published bool // the outputs of the event, which are not needed any more
}

// inBatch runs statements that work on stored messages, in a short transaction of their own.
func (r *repository) inBatch(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if err := r.batchStmts.prepare(ctx, r.db.DB, r.queries.batch()...); err != nil {
		return r.explain(ctx, r.db, err)
	}

	if r.engine.oneWriter() {
		r.writing.Lock()
		defer r.writing.Unlock()
	}

	return r.inTx(ctx, func(tx *sql.Tx) error {
		if err := r.engine.waitForLocks(ctx, tx); err != nil {
			return err
		}

		if r.queries.planLookups != "" {
			if _, err := r.batchStmts.exec(ctx, tx, r.queries.planLookups); err != nil {
				return err
			}
		}

		if err := fn(tx); err != nil {
			return r.explain(ctx, tx, err)
		}

		return nil
	})
}

// store writes what is new of the arrivals, which must have different keys and one consumer, in the order of their keys, and
// tells for each what became of it. At most as many stay leased as are marked so.
func (r *repository) store(
	ctx context.Context, topic string, t term, arrivals []arrival,
) (fates []stored, err error) {
	consumer := arrivals[0].event.Consumer

	// In this order, concurrent stores of the same events wait for each other and cannot deadlock.
	byKey := make([]int, len(arrivals))
	for i := range byKey {
		byKey[i] = i
	}

	slices.SortFunc(byKey, func(i, j int) int { return slices.Compare(arrivals[i].key[:], arrivals[j].key[:]) })

	var keys, sources, ids, types column

	for _, i := range byKey {
		a := &arrivals[i]
		keys = append(keys, a.key.hex())
		sources = append(sources, printable(a.event.Source))
		ids = append(ids, printable(a.event.ID))
		types = append(types, printable(a.event.Type))
	}

	err = r.inBatch(ctx, func(tx *sql.Tx) error {
		fates = make([]stored, len(arrivals))

		lanes := lanesOf(arrivals, func(a arrival) lane { return a.lane })
		if err := r.lockLanes(ctx, tx, lanes); err != nil {
			return err
		}

		fresh, err := r.keys(ctx, tx, r.queries.storeEvents, append([]any{printable(consumer)},
			r.engine.listArgs(keys, sources, ids, types)...)...)
		if err != nil {
			return err
		}

		var strays map[Key]bool
		if len(fresh) < len(arrivals) {
			if strays, err = r.keys(ctx, tx, r.queries.strays, r.engine.listArgs(keys)...); err != nil {
				return err
			}
		}

		if len(fresh)+len(strays) == 0 {
			return nil
		}

		if err := r.storeMessages(ctx, tx, topic, t, arrivals, fates, fresh, strays); err != nil {
			return err
		}

		return r.promote(ctx, tx, lanes)
	})

	return fates, err
}

// storeMessages writes those that are to be handed out. They travel in one piece, because drivers and server take their time
// over arrays of long elements.
func (r *repository) storeMessages(
	ctx context.Context, tx *sql.Tx, topic string, t term,
	arrivals []arrival, fates []stored, fresh, strays map[Key]bool,
) error {
	var (
		keys, lanes, leases, starts, sizes column
		messages                           []byte
	)

	for i, a := range arrivals {
		var lease string

		switch {
		case fresh[a.key] && a.lease:
			fates[i], lease = storedLeased, strconv.FormatInt(t.number, 10)
		case fresh[a.key], strays[a.key]:
			fates[i] = storedDue
		default:
			continue
		}

		start := len(messages)
		messages = appendStored(messages, a.event, topic, a.msg)

		keys = append(keys, a.key.hex())
		lanes = append(lanes, a.lane.text())
		leases = append(leases, lease)
		starts = append(starts, strconv.Itoa(start+1))
		sizes = append(sizes, strconv.Itoa(len(messages)-start))
	}

	queue := queueOf(arrivals[0].event.Consumer, topic)
	args := append([]any{r.engine.keyArg(queue), r.engine.keyArg(t.owner), t.duration.Milliseconds(), messages},
		r.engine.listArgs(keys, lanes, leases, starts, sizes)...)
	_, err := r.batchStmts.exec(ctx, tx, r.queries.storeMessages, args...)

	return err
}

// lease claims up to limit messages that are due, oldest first, where the look says, and completes it.
func (r *repository) lease(ctx context.Context, queue Key, t term, look *look, limit int) (claimed []leased, err error) {
	err = r.inBatch(ctx, func(tx *sql.Tx) (err error) {
		start := time.Now()
		defer func() { look.took = time.Since(start) }()

		var (
			last place
			now  int64
		)

		if claimed, last, now, err = r.claimDue(ctx, tx, queue, t, look.from, limit); err != nil {
			return err
		}

		look.short = len(claimed) < limit

		if len(claimed) == 0 && r.queries.clock != "" {
			if err := r.batchStmts.queryRow(ctx, nil, tx, r.queries.clock).Scan(&now); err != nil {
				return err
			}
		}

		look.next = last
		if safe := (place{due: now - lateCommit.Microseconds()}); look.short || last.due >= safe.due {
			look.next = safe
		}

		if now == 0 { // the engine has no use for places
			look.next = place{}
		}

		return nil
	})

	slices.SortFunc(claimed, func(a, b leased) int { return cmp.Compare(a.seq, b.seq) })

	return claimed, err
}

// claimDue returns, beside the messages, the place of the last one and the time, by the database's clock, if there are any.
func (r *repository) claimDue(
	ctx context.Context, tx *sql.Tx, queue Key, t term, from place, limit int,
) (claimed []leased, last place, now int64, err error) {
	rows, err := r.batchStmts.query(ctx, tx, r.queries.lease, r.engine.keyArg(queue),
		r.engine.keyArg(t.owner), t.duration.Milliseconds(), t.number, limit, from.due, from.seq)
	if err != nil {
		return nil, last, 0, err
	}
	defer rows.Close()

	for rows.Next() {
		l := leased{fence: fence{lease: t.number}}

		err := rows.Scan(&l.key, &l.seq, &l.attempts, &l.lane, &l.data, &l.processed, &l.outputs, &last.due, &last.seq, &now)
		if err != nil {
			return nil, last, 0, err
		}

		claimed = append(claimed, l)
	}

	return claimed, last, now, rows.Err()
}

// renew extends leases and returns the keys of those that still are the owner's.
func (r *repository) renew(ctx context.Context, owner Key, lease time.Duration, fences []fence) (renewed map[Key]bool, err error) {
	list := r.engine.listArgs(fenceColumns(fences)...)

	err = r.inBatch(ctx, func(tx *sql.Tx) error {
		renewed, err = r.keys(ctx, tx, r.queries.renew, append([]any{r.engine.keyArg(owner), lease.Milliseconds()}, list...)...)
		if err != nil || len(renewed) == len(fences) {
			return err
		}

		held, err := r.keys(ctx, tx, r.queries.held, append([]any{r.engine.keyArg(owner)}, list...)...)
		for key := range held {
			renewed[key] = true
		}

		return err
	})

	return renewed, err
}

// settle carries out verdicts and returns the keys of those whose lease still was the owner's.
func (r *repository) settle(ctx context.Context, owner Key, verdicts []verdict) (settled map[Key]bool, err error) {
	var (
		done, others         []fence
		fates, delays, texts column
	)

	for _, v := range verdicts {
		if v.fate == fateDone {
			done = append(done, v.fence)

			continue
		}

		others = append(others, v.fence)
		fates = append(fates, string(v.fate))
		delays = append(delays, strconv.FormatInt(v.delay.Milliseconds(), 10))
		texts = append(texts, v.err)
	}

	lanes := lanesOf(verdicts, func(v verdict) lane { return v.lane })

	err = r.inBatch(ctx, func(tx *sql.Tx) error {
		settled = make(map[Key]bool, len(verdicts))

		if err := r.lockLanes(ctx, tx, lanes); err != nil {
			return err
		}

		if len(done) > 0 {
			args := append([]any{r.engine.keyArg(owner)}, r.engine.listArgs(fenceColumns(done)...)...)
			if err := r.follow(ctx, tx, settled, r.queries.finish, args...); err != nil {
				return err
			}

			if err := r.forgetPublished(ctx, tx, verdicts, settled); err != nil {
				return err
			}
		}

		if len(others) > 0 {
			args := append([]any{r.engine.keyArg(owner)},
				r.engine.listArgs(append(fenceColumns(others), fates, delays, texts)...)...)
			if err := r.follow(ctx, tx, settled, []string{r.queries.release}, args...); err != nil {
				return err
			}
		}

		return r.promote(ctx, tx, lanes)
	})

	return settled, err
}

func (r *repository) forgetPublished(ctx context.Context, tx *sql.Tx, verdicts []verdict, settled map[Key]bool) error {
	var keys column

	for _, v := range verdicts {
		if v.published && settled[v.key] {
			keys = append(keys, v.key.hex())
		}
	}

	if len(keys) == 0 {
		return nil
	}

	_, err := r.batchStmts.exec(ctx, tx, r.queries.published, r.engine.listArgs(keys)...)

	return err
}

// hold marks the event of a leased message processed, for the transaction to commit with what the handler writes, and keeps
// others from leasing it until then. It reports false for an event that was processed before, and returns ErrLeaseLost when
// the lease is not the owner's any more.
func (r *repository) hold(ctx context.Context, tx *sql.Tx, owner Key, f fence) (fresh bool, err error) {
	args := []any{r.engine.keyArg(f.key), r.engine.keyArg(owner), f.lease}

	affected, err := r.exec(ctx, tx, r.queries.hold, args...)
	if err != nil || affected == 1 {
		return affected == 1, err
	}

	var held bool
	if err := r.stmts.queryRow(ctx, r.db.DB, tx, r.queries.stillHeld, args...).Scan(&held); err != nil {
		return false, err
	}

	if !held {
		return false, ErrLeaseLost
	}

	return false, nil
}

// takeOver claims an event for the transaction that is stored but unfinished and not in anybody's hands, as a service finds it
// that came back from store-then-process to same-transaction mode. The message stays for outputs, which would be lost if the process
// died before they were published and the broker thought the event done: whoever leases it next publishes them again.
func (r *repository) takeOver(ctx context.Context, tx *sql.Tx, key Key) (taken bool, err error) {
	var processed bool
	if err := r.stmts.queryRow(ctx, r.db.DB, tx, r.queries.known, r.engine.keyArg(key)).Scan(&processed); err != nil || processed {
		return false, err
	}

	messages, err := r.exec(ctx, tx, r.queries.takeMessage, r.engine.keyArg(key))
	if err != nil {
		return false, err
	}

	events, err := r.exec(ctx, tx, r.queries.takeEvent, r.engine.keyArg(key), messages == 1)

	return events == 1, err
}

// forgetMessage removes a message that is not in a lane.
func (r *repository) forgetMessage(ctx context.Context, tx *sql.Tx, key Key) error {
	_, err := r.exec(ctx, tx, r.queries.forgetMessage, r.engine.keyArg(key))

	return err
}

// follow runs a statement that returns keys, adds them to keys, and runs the statements that follow it.
func (r *repository) follow(ctx context.Context, tx *sql.Tx, keys map[Key]bool, queries []string, args ...any) error {
	found, err := r.keys(ctx, tx, queries[0], args...)
	if err != nil {
		return err
	}

	for key := range found {
		keys[key] = true
	}

	for _, query := range queries[1:] {
		if _, err := r.batchStmts.exec(ctx, tx, query, args...); err != nil {
			return err
		}
	}

	return nil
}

// keys returns the keys that a statement yields, of which a row may hold none, one or many.
func (r *repository) keys(ctx context.Context, tx *sql.Tx, query string, args ...any) (map[Key]bool, error) {
	rows, err := r.batchStmts.query(ctx, tx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()

	keys := make(map[Key]bool)

	for rows.Next() {
		var row []byte
		if err := rows.Scan(&row); err != nil {
			return nil, err
		}

		if len(row)%len(Key{}) != 0 {
			return nil, fmt.Errorf("%w: %d bytes", errNotAKey, len(row))
		}

		for key := range slices.Chunk(row, len(Key{})) {
			keys[Key(key)] = true
		}
	}

	return keys, rows.Err()
}

func fenceColumns(fences []fence) []column {
	keys, leases := make(column, len(fences)), make(column, len(fences))
	for i, f := range fences {
		keys[i] = f.key.hex()
		leases[i] = strconv.FormatInt(f.lease, 10)
	}

	return []column{keys, leases}
}
