package main

import (
	"context"
	"fmt"
	"strings"
)

const storedLegend = `
River Insert        a unique job for each event, by 64 goroutines
River InsertMany    the same by one goroutine, 64 jobs at once
River               from a backlog of unique jobs to all of them recorded as completed
inbox               messages of 256 bytes that a broker in memory delivers, to the broker's acks; nobody reads what is handed out
inbox, N x 1        the same with N subscriptions of one message each, as most brokers' subscribers need it to have N in flight
inbox, channel      from a backlog of stored events to all of them recorded as processed, reading the subscriber's channel
inbox, router       the same through Watermill's router
by hand             the inbox's rows by one connection, all that is in flight in one transaction, with one INSERT for each table
                    that takes an array for each column, which was faster here than a VALUES list; nothing is deduplicated

CPU is in percent of one processor; what is missing was used by other programs. WAL is the server's write-ahead log.
What leaves processors idle is bound by waiting: one connection and its server take turns, and each commit waits for the
disk. What does not is bound by the processors, for which this program and the server compete.
`

// stored compares store-then-process with what a user would take instead.
func stored(ctx context.Context, b bench) error {
	queue, err := newJobQueue(ctx, b.addr)
	if err != nil {
		return fmt.Errorf("river: %w", err)
	}
	defer queue.close()

	const few, many = 64, 256

	var (
		// At a second for each run, about what River works off in that time.
		backlog = max(2000, int(15_000*b.duration.Seconds()))

		storing = comparison{title: fmt.Sprintf("store, %d in flight", few), variants: []variant{
			{name: "River Insert", run: each(few, b.duration, queue.insert)},
			{name: "River InsertMany", run: batches(1, few, b.duration, queue.insertMany)},
		}}
		working = comparison{title: "stored to done", variants: []variant{
			{name: "River", run: queue.work(backlog)},
		}}
		raw []comparison
	)

	for _, driver := range b.drivers {
		db, err := b.open(driver)
		if err != nil {
			return err
		}
		defer db.Close()

		db.SetMaxIdleConns(8)

		s, err := newStore(ctx, db)
		if err != nil {
			return err
		}

		hand, err := newByHand(ctx, db, driver, s)
		if err != nil {
			return err
		}

		storing.variants = append(storing.variants,
			variant{name: "by hand, " + driver, run: batches(1, few, b.duration, hand.insert)},
			variant{name: "inbox, " + driver, aim: 10, run: s.fill(1, few, b.duration)},
			variant{name: fmt.Sprintf("inbox, %d x 1, %s", few, driver), aim: 10, run: s.fill(few, 1, b.duration)})
		working.variants = append(working.variants,
			variant{name: "inbox, channel, " + driver, aim: 2, run: s.work(backlog, read)},
			variant{name: "inbox, router, " + driver, aim: 2, run: s.work(backlog, route)})
		raw = append(raw, comparison{title: fmt.Sprintf("store, %d in flight, %s", many, driver), variants: []variant{
			{name: "by hand", run: batches(1, many, b.duration, hand.insert)},
			{name: "inbox", aim: 0.7, run: s.fill(1, many, b.duration)},
			{name: fmt.Sprintf("inbox, %d x 1", many), aim: 0.7, run: s.fill(many, 1, b.duration)},
		}})
	}

	var aims strings.Builder

	for _, c := range append([]comparison{storing, working}, raw...) {
		c.reset = func(ctx context.Context) error {
			_, err := b.meter.db.ExecContext(ctx, `TRUNCATE `+strings.Join([]string{
				riverSchema + ".river_job", inboxTable, inboxTable + "_payloads", inboxTable + "_outputs", rawTable, rawTable + "_payloads",
			}, ", "))

			return err
		}

		samples, err := b.compare(ctx, c)
		if err != nil {
			return err
		}

		aims.WriteString(c.aims(samples))
	}

	fmt.Printf("%s\n%s", storedLegend, &aims)

	return nil
}
