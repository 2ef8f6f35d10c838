package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Where the processes are killed: at the n-th message that each of them deals with.
var (
	relayHolds   = []int{relayBatch / 2, relayBatch + relayBatch/2} // in its first batch, and in its second
	consumerHold = 3
)

type demonstration struct {
	*setting
	stdout, stderr io.Writer
	begun          time.Time
	published      atomic.Int64
}

// demonstrate runs the services, kills them, and reads the outcome.
func demonstrate(ctx context.Context, cfg config, stdout, stderr io.Writer, logger watermill.LoggerAdapter) (_ *report, err error) {
	db, err := openDatabase(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	d := &demonstration{
		setting: &setting{config: cfg, db: db, logger: logger},
		stdout:  stdout, stderr: &sharedWriter{w: stderr}, begun: time.Now(),
	}

	if !cfg.keep {
		defer func() { err = errors.Join(err, d.dropTables(context.WithoutCancel(ctx))) }()
	}

	if err := d.createTables(ctx); err != nil {
		return nil, err
	}

	if err := d.run(ctx); err != nil {
		return nil, err
	}

	return d.readReport(ctx, d.published.Load())
}

func (d *demonstration) run(ctx context.Context) (err error) {
	consumer, err := d.startService(ctx, "consumer", consumerHold)
	if err != nil {
		return err
	}

	// Whatever happens, no process outlives this one.
	defer func() { err = errors.Join(err, d.stop(consumer)) }()

	if err := d.placeOrders(ctx); err != nil {
		return err
	}

	for i, hold := range relayHolds {
		if err := d.relayAndKill(ctx, hold); err != nil {
			return err
		}

		if i > 0 {
			continue
		}

		if err := d.expectAndKill(ctx, consumer, "between commit and ack"); err != nil {
			return err
		}

		if consumer, err = d.startService(ctx, "consumer", 0); err != nil {
			return err
		}
	}

	relay, err := d.startService(ctx, "relay", 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stop(relay)) }()

	return d.awaitDeliveries(ctx)
}

func (d *demonstration) placeOrders(ctx context.Context) error {
	producer, err := start(d.config, "producer", 0, d.stderr, nil)
	if err != nil {
		return err
	}

	if err := producer.wait(ctx); err != nil {
		return fmt.Errorf("the producer failed: %w", err)
	}

	d.say("%d orders were placed", d.orders)

	return nil
}

func (d *demonstration) relayAndKill(ctx context.Context, hold int) error {
	relay, err := d.startService(ctx, "relay", hold)
	if err != nil {
		return err
	}

	return d.expectAndKill(ctx, relay, "between publish and mark")
}

func (d *demonstration) startService(ctx context.Context, role string, hold int) (*process, error) {
	p, err := start(d.config, role, hold, d.stderr, func() { d.published.Add(1) })
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()

	if err := p.expect(ctx, running); err != nil {
		return nil, errors.Join(err, p.kill())
	}

	d.say("the %s runs", role)

	return p, nil
}

func (d *demonstration) expectAndKill(ctx context.Context, p *process, where string) error {
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()

	err := p.expect(ctx, holding)
	if err == nil {
		d.say("the %s is killed %s", p.role, where)
	}

	return errors.Join(err, p.kill())
}

// stop gives a process time to end even when the program was interrupted. One that was killed needs none.
func (d *demonstration) stop(p *process) error {
	if p == nil || p.killed {
		return nil
	}

	ctx, cancel := context.WithTimeout(context.Background(), d.patience)
	defer cancel()

	return p.stop(ctx)
}

// awaitDeliveries waits until the consumer has dealt with every event and with as many deliveries as there were publishes.
// It gives up when there is no more progress, and leaves the rest to the report.
func (d *demonstration) awaitDeliveries(ctx context.Context) error {
	const look = 50 * time.Millisecond

	for seen, since := int64(-1), time.Now(); time.Since(since) < d.patience; {
		var events, deliveries int64

		err := d.db.QueryRowContext(ctx, d.query(`SELECT count(DISTINCT event_id), count(*) FROM {schema}.deliveries`)).
			Scan(&events, &deliveries)
		if err != nil {
			return err
		}

		if events == int64(d.orders) && deliveries >= d.published.Load() {
			return nil
		}

		if deliveries > seen {
			seen, since = deliveries, time.Now()
		}

		select {
		case <-time.After(look):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}

	d.say("nothing was delivered any more for %s", d.patience)

	return nil
}

func (d *demonstration) say(format string, args ...any) {
	fmt.Fprintf(d.stdout, "%6.1fs  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}
