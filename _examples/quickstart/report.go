package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"sync"
	"time"
)

// report is what the database says in the end.
type report struct {
	events, charges, receipts, lost, doubled                int64
	paidTwice, customers                                    int64
	owed, charged                                           int64
	deliveries, runs, failed, cutOff, skipped, sent, unsent int64
}

func readReport(ctx context.Context, db *sql.DB) (*report, error) {
	var r report

	err := db.QueryRowContext(ctx, `
		WITH outcome AS (
			SELECT customer, cents,
				(SELECT count(*) FROM charges AS c WHERE c.source = e.source AND c.event_id = e.event_id) AS charges,
				(SELECT count(*) FROM receipts AS r WHERE r.source = e.source AND r.event_id = e.event_id) AS receipts
			FROM events AS e
		)
		SELECT count(*), sum(cents),
			sum(CASE charges WHEN 0 THEN 1 ELSE max(charges - receipts, 0) END),
			sum(charges > 1 OR receipts > 1),
			count(DISTINCT customer), count(DISTINCT CASE WHEN charges > 1 THEN customer END)
		FROM outcome`).Scan(&r.events, &r.owed, &r.lost, &r.doubled, &r.customers, &r.paidTwice)
	if err != nil {
		return nil, err
	}

	for query, to := range map[string]*int64{
		`SELECT count(*) FROM charges`:                     &r.charges,
		`SELECT coalesce(sum(cents), 0) FROM charges`:      &r.charged,
		`SELECT count(*) FROM receipts`:                    &r.receipts,
		`SELECT n FROM counters WHERE name = 'deliveries'`: &r.deliveries,
		`SELECT n FROM counters WHERE name = 'runs'`:       &r.runs,
		`SELECT n FROM counters WHERE name = 'failed'`:     &r.failed,
		`SELECT n FROM counters WHERE name = 'cut off'`:    &r.cutOff,
		`SELECT n FROM counters WHERE name = 'skipped'`:    &r.skipped,
		`SELECT n FROM counters WHERE name = 'unsent'`:     &r.unsent,
		`SELECT n FROM counters WHERE name = 'sent'`:       &r.sent,
	} {
		if err := db.QueryRowContext(ctx, query).Scan(to); err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
	}

	return &r, nil
}

func (r *report) print(w io.Writer) {
	row := func(name string, value any, remark string, args ...any) {
		fmt.Fprintf(w, "  %-18s %9v  %s\n", name, value, fmt.Sprintf(remark, args...))
	}

	row("events", r.events, "different in source or id")
	row("deliveries", r.deliveries, "%d copies, more after nacks and the restart", copies)
	row("handler runs", r.runs, "%d failed on purpose, %d cut off by the stop", r.failed, r.cutOff)
	row("effects", r.charges, "charges, one row each")
	row("duplicates skipped", r.skipped, "by the inbox")
	row("outputs sent", r.sent, "%d different receipts; %d publishes failed", r.receipts, r.unsent)
	row("lost", r.lost, "events without charge, charges without receipt")
	row("doubled", r.doubled, "events with two charges or two receipts")
	row("charged", money(r.charged), "of %s owed", money(r.owed))
}

// verdict says in one line what the table means, and whether a promise was broken.
func (r *report) verdict(withInbox bool) (line string, ok bool) {
	switch {
	case !withInbox:
		return fmt.Sprintf("Without the inbox %d of %d customers paid more than once: %s too much.",
			r.paidTwice, r.customers, money(r.charged-r.owed)), true
	case r.lost > 0 || r.doubled > 0:
		return fmt.Sprintf("BROKEN: %d lost, %d doubled, and both must be 0 with the inbox.", r.lost, r.doubled), false
	default:
		return "Kept: every event charged its customer once and has one receipt.", true
	}
}

func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// narrator prints what happens, with the time since the start.
type narrator struct {
	start time.Time

	mu sync.Mutex
	w  io.Writer
}

func (n *narrator) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()

	fmt.Fprintf(n.w, "%6.1fs  %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}

// watch prints the counters until ctx ends: every second at first, and then less often, so that they fit a screen.
func (n *narrator) watch(ctx context.Context, c *counters) {
	for {
		if wait(ctx, max(time.Second, time.Since(n.start)-3*time.Second)) != nil {
			return
		}

		n.say("%d deliveries, %d handler runs, %d skipped, %d outputs sent",
			c.deliveries.Load(), c.runs.Load(), c.skipped.Load(), c.sent.Load())
	}
}
