package main

import (
	"context"
	"fmt"
	"io"
)

// report is what the database says in the end, and how often the relays published.
type report struct {
	orders, published, deliveries, charges, invoices int64
	doubled, missing                                 int64
}

// readReport counts for each order. An invoice is a message whose payload is the order's.
func (s *setting) readReport(ctx context.Context, published int64) (*report, error) {
	r := &report{published: published}

	err := s.db.QueryRowContext(ctx, s.query(`
		WITH outcome AS (
			SELECT
				(SELECT count(*) FROM {schema}.charges AS c WHERE c.order_id = o.order_id) AS charges,
				(SELECT count(*) FROM {schema}.watermill_invoices AS i WHERE i.payload->>'order_id' = o.order_id) AS invoices
			FROM {schema}.orders AS o
		)
		SELECT count(*), coalesce(sum(charges), 0), coalesce(sum(invoices), 0),
			count(*) FILTER (WHERE charges > 1 OR invoices > 1),
			count(*) FILTER (WHERE charges = 0 OR invoices = 0),
			(SELECT count(*) FROM {schema}.deliveries)
		FROM outcome`)).Scan(&r.orders, &r.charges, &r.invoices, &r.doubled, &r.missing, &r.deliveries)

	return r, err
}

func (r *report) kept() bool { return r.orders > 0 && r.doubled == 0 && r.missing == 0 }

func (r *report) print(w io.Writer) {
	for _, row := range []struct {
		name   string
		number int64
		remark string
	}{
		{"orders", r.orders, "each with one event in the outbox"},
		{"published", r.published, "by three relays, two of which were killed"},
		{"deliveries", r.deliveries, "handled by two consumers, one of which was killed"},
		{"charges", r.charges, ""},
		{"invoices", r.invoices, "in the consumer's outbox"},
		{"doubled", r.doubled, "orders with two charges or two invoices"},
		{"missing", r.missing, "orders without charge or invoice"},
	} {
		fmt.Fprintf(w, "  %-10s %6d  %s\n", row.name, row.number, row.remark)
	}

	if r.kept() {
		fmt.Fprintln(w, "Kept: every order was charged exactly once and has one invoice.")
	} else {
		fmt.Fprintln(w, "BROKEN: doubled and missing must be 0.")
	}
}
