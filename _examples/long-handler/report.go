package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
)

// report is what the database and the mail API say in the end.
type report struct {
	keys             bool
	orders, messages int
	calls, failed    int
	repeated, mails  int
	leases, left     int64
	rows             int
	doubled, missing int // mails
	wrongRows        int // orders that are in the table never or several times
}

func (r *report) read(ctx context.Context, db *sql.DB, api *mailAPI) error {
	rows, err := db.QueryContext(ctx, `SELECT order_id, count(*) FROM sent GROUP BY order_id`)
	if err != nil {
		return err
	}
	defer rows.Close()

	once := 0

	for rows.Next() {
		var (
			orderID string
			n       int
		)

		if err := rows.Scan(&orderID, &n); err != nil {
			return err
		}

		r.rows += n
		if n == 1 {
			once++
		}
	}

	api.mu.Lock()
	defer api.mu.Unlock()

	r.keys, r.calls, r.failed, r.repeated, r.mails = api.keys, api.calls, api.failed, api.repeated, api.accepted
	r.missing, r.wrongRows = r.orders-len(api.sent), r.orders-once

	for _, n := range api.sent {
		if n > 1 {
			r.doubled++
		}
	}

	return rows.Err()
}

// kept reports whether nothing was lost, and nothing doubled that a key or the inbox keeps from being doubled.
func (r *report) kept() bool {
	return r.orders > 0 && r.missing == 0 && r.wrongRows == 0 && r.left == 0 && (r.doubled == 0 || !r.keys)
}

func (r *report) print(w io.Writer) {
	for _, row := range []struct {
		name   string
		number any
		remark string
	}{
		{"messages", r.messages, fmt.Sprintf("for %d orders; the rest are the same events again", r.orders)},
		{"calls", r.calls, fmt.Sprintf("of the mail API; %d were answered with a 500 and made again", r.failed)},
		{"repeated", r.repeated, "calls with a key that the API knew: nothing sent"},
		{"leases", r.leases, "of the killed worker, which had to run out"},
		{"mails", r.mails, "sent by the API"},
		{"rows", r.rows, "written in InTx, with the end of their message"},
		{"doubled", r.doubled, "orders with several mails"},
		{"missing", r.missing, "orders without a mail"},
		{"left", r.left, "stored messages; a finished one leaves its id only"},
	} {
		fmt.Fprintf(w, "  %-10s %6d  %s\n", row.name, row.number, row.remark)
	}

	switch {
	case !r.kept():
		fmt.Fprintln(w, "BROKEN: each order must have a mail and one row, and with keys one mail only.")
	case r.doubled > 0:
		fmt.Fprintf(w, "Without keys %d customers got their mail twice: a call is outside of the\n"+
			"database, so it was made again after the kill. The rows are inside: one each.\n", r.doubled)
	case r.keys:
		fmt.Fprintln(w, "Kept: one mail and one row for each order. Calls are made at least once, and the\n"+
			"API makes one mail of them by their key, inbox.EventFromContext(ctx).ID.")
	default:
		fmt.Fprintln(w, "One mail and one row for each order, by luck: there were no keys.")
	}
}
