package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// The settings at which River was fastest here. More workers and connections slow it down on few processors, fewer starve
// it; a client that only inserts keeps the default cooldown, which is how often it notifies the others.
const (
	riverConns   = 8
	riverWorkers = 2000
	riverBatch   = 500
)

const riverSchema = "bench_river"

type job struct {
	ID      string `json:"id" river:"unique"`
	Payload string `json:"payload"`
}

func (job) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[job]

	worked atomic.Int64
	all    int64
	done   chan struct{}
}

func (w *worker) Work(context.Context, *river.Job[job]) error {
	if w.worked.Add(1) == w.all {
		close(w.done)
	}

	return nil
}

var unique = &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}

// jobQueue is River on tables of its own.
type jobQueue struct {
	pool   *pgxpool.Pool
	driver *riverpgxv5.Driver
	client *river.Client[pgx.Tx] // for inserting
}

func newJobQueue(ctx context.Context, addr string) (*jobQueue, error) {
	config, err := pgxpool.ParseConfig(addr)
	if err != nil {
		return nil, err
	}

	config.MaxConns = riverConns

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}

	q := &jobQueue{pool: pool, driver: riverpgxv5.New(pool)}
	if err := q.migrate(ctx); err != nil {
		pool.Close()

		return nil, err
	}

	q.client, err = river.NewClient(q.driver, &river.Config{Schema: riverSchema, Logger: slog.New(slog.DiscardHandler)})

	return q, err
}

func (q *jobQueue) close() { q.pool.Close() }

func (q *jobQueue) migrate(ctx context.Context) error {
	if _, err := q.pool.Exec(ctx, "CREATE SCHEMA "+riverSchema); err != nil {
		return err
	}

	migrator, err := rivermigrate.New(q.driver, &rivermigrate.Config{
		Schema: riverSchema, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}

	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)

	return err
}

func (q *jobQueue) insert(ctx context.Context, id string) error {
	_, err := q.client.Insert(ctx, job{id, payload}, unique)

	return err
}

func (q *jobQueue) insertMany(ctx context.Context, ids []string) error {
	params := make([]river.InsertManyParams, len(ids))
	for i, id := range ids {
		params[i] = river.InsertManyParams{Args: job{id, payload}, InsertOpts: unique}
	}

	_, err := q.client.InsertMany(ctx, params)

	return err
}

// work is stored-to-done: it stores jobs, and then measures how long a fresh client with a handler that does nothing takes
// until the last of them is recorded as done.
func (q *jobQueue) work(jobs int) func(context.Context, *meter) error {
	return func(ctx context.Context, m *meter) error {
		for left := jobs; left > 0; left -= riverBatch {
			ids, err := newIDs(min(left, riverBatch))
			if err != nil {
				return err
			}

			if err := q.insertMany(ctx, ids); err != nil {
				return err
			}
		}

		noop := &worker{all: int64(jobs), done: make(chan struct{})}
		workers := river.NewWorkers()
		river.AddWorker(workers, noop)

		client, err := river.NewClient(q.driver, &river.Config{
			Schema:            riverSchema,
			Logger:            slog.New(slog.DiscardHandler),
			Workers:           workers,
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
			FetchCooldown:     river.FetchCooldownMin,
			FetchPollInterval: river.FetchPollIntervalMin,
			JobTimeout:        -1,
		})
		if err != nil {
			return err
		}

		if err := m.start(ctx); err != nil {
			return err
		}

		if err := client.Start(ctx); err != nil {
			return err
		}

		select {
		case <-noop.done:
		case <-ctx.Done():
			return ctx.Err()
		}

		// Stopping writes the last completions at once, instead of up to 250 ms later.
		stopped := make(chan error, 1)
		go func() { stopped <- client.Stop(context.WithoutCancel(ctx)) }()

		err = awaitNone(ctx, m, `SELECT FROM `+riverSchema+`.river_job WHERE state IN ('available', 'running')`)
		if err == nil {
			err = m.stop(ctx, int64(jobs))
		}

		return firstOf(err, <-stopped)
	}
}

// awaitNone returns when the query has no rows any more.
func awaitNone(ctx context.Context, m *meter, query string) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()

	for {
		var some bool
		if err := m.db.QueryRowContext(ctx, "SELECT EXISTS ("+query+")").Scan(&some); err != nil || !some {
			return err
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
