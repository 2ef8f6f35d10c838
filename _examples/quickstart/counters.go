package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// counters counts what leaves no trace in the tables of the shop. It does so in memory, because SQLite has one writer
// and a handler's transaction is it, and is added to the database at the end.
type counters struct {
	deliveries  atomic.Int64 // of order events to the router
	runs        atomic.Int64 // of the handler
	failed      atomic.Int64 // of those on purpose
	cutOff      atomic.Int64 // deliveries that the stopping router cancelled
	skipped     atomic.Int64 // deliveries that the inbox took for duplicates
	publishes   atomic.Int64 // attempts to publish a receipt
	sent        atomic.Int64 // receipts published
	unexpected  atomic.Int64
	mu          sync.Mutex
	lastProblem error
}

// countDeliveries is the outermost middleware.
func (n *counters) countDeliveries(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		n.deliveries.Add(1)

		outputs, err := h(msg)

		switch {
		case err == nil || errors.Is(err, errInjected):
		case msg.Context().Err() != nil:
			n.cutOff.Add(1)
		default:
			n.unexpected.Add(1)
			n.mu.Lock()
			n.lastProblem = err
			n.mu.Unlock()
		}

		return outputs, err
	}
}

// problem returns the last error that nobody caused on purpose.
func (n *counters) problem() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.lastProblem
}

func (n *counters) save(ctx context.Context, db *sql.DB) error {
	for name, value := range map[string]int64{
		"deliveries": n.deliveries.Load(),
		"runs":       n.runs.Load(),
		"failed":     n.failed.Load(),
		"cut off":    n.cutOff.Load(),
		"skipped":    n.skipped.Load(),
		"sent":       n.sent.Load(),
		"unsent":     n.publishes.Load() - n.sent.Load(),
	} {
		_, err := db.ExecContext(ctx, `INSERT INTO counters (name, n) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET n = n + excluded.n`, name, value)
		if err != nil {
			return err
		}
	}

	return nil
}
