package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// sample is what one run of a variant showed.
type sample struct {
	rate                 float64 // events per second
	client, server, idle float64 // of the processors' time, in percent of one processor; NaN where the system does not tell
	wal                  float64 // bytes of write-ahead log per event
}

// meter takes the sample of one run. A variant starts it when everything is ready, and stops it when the work is done
// but nothing is taken down yet.
type meter struct {
	db         *sql.DB // of its own, so that it waits for nobody's connection
	postmaster int
	began      reading
	sample     sample
}

type reading struct {
	at  time.Time
	cpu processors
	wal int64
}

func newMeter(ctx context.Context, db *sql.DB) (*meter, error) {
	m := &meter{db: db}

	err := db.QueryRowContext(ctx, `SELECT split_part(pg_read_file('postmaster.pid'), E'\n', 1)::integer`).Scan(&m.postmaster)
	if err != nil {
		return nil, fmt.Errorf("asking the server for its process id: %w", err)
	}

	return m, nil
}

func (m *meter) start(ctx context.Context) (err error) {
	m.began, err = m.read(ctx)
	m.began.at = time.Now()

	return err
}

// stop ends the run that began with start, in which so many events were done.
func (m *meter) stop(ctx context.Context, events int64) error {
	now := time.Now()

	end, err := m.read(ctx)
	if err != nil {
		return err
	}

	var (
		elapsed = now.Sub(m.began.at).Seconds()
		percent = func(d time.Duration) float64 { return 100 * d.Seconds() / elapsed }
		used    = end.cpu.since(m.began.cpu)
	)

	m.sample = sample{
		rate:   float64(events) / elapsed,
		client: percent(used.client),
		server: percent(used.server),
		idle:   percent(used.idle),
		wal:    float64(end.wal-m.began.wal) / float64(events),
	}

	return nil
}

func (m *meter) read(ctx context.Context) (r reading, err error) {
	r.cpu = readProcessors(m.postmaster)
	err = m.db.QueryRowContext(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&r.wal)

	return r, err
}
