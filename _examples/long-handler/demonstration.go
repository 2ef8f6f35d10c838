package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-inbox/inbox"
)

type order struct {
	EventID string `json:"event_id"`
	ID      string `json:"order_id"`
}

type demonstration struct {
	config
	result         report
	ib             *inbox.Inbox
	api            *mailAPI
	db             string
	stdout, stderr io.Writer
	begun          time.Time
}

// demonstrate runs a worker, kills it, runs another one, and reads the outcome.
func demonstrate(ctx context.Context, cfg config, stdout, stderr io.Writer) (_ *report, err error) {
	patience := 2*time.Minute + time.Duration(cfg.mails)*cfg.delay

	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not finished after %s", patience))
	defer cancel()

	dir, err := os.MkdirTemp("", "long-handler-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	d := &demonstration{config: cfg, db: filepath.Join(dir, "mails.db"), stdout: stdout, stderr: stderr, begun: time.Now()}

	db, ib, err := openInbox(ctx, d.db, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	d.ib = ib
	if d.api, err = startAPI(cfg); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.api.server.Close()) }()

	if err := d.run(ctx); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}

	return &d.result, d.result.read(ctx, db, d.api)
}

func (d *demonstration) run(ctx context.Context) error {
	worker, err := d.startWorker(ctx)
	if err != nil {
		return err
	}

	if err := d.publish(worker); err != nil {
		return errors.Join(err, worker.stop())
	}

	d.say("a worker runs; its broker has delivered %d messages and keeps none", d.result.messages)

	if d.kill > 0 {
		if worker, err = d.replace(ctx, worker); err != nil {
			return err
		}
	}

	err = d.awaitEmpty(ctx, worker)

	return errors.Join(err, worker.stop())
}

func (d *demonstration) startWorker(ctx context.Context) (*process, error) {
	return startWorker(ctx, workerSettings{DB: d.db, API: d.api.url, Keys: d.keys}, d.stderr)
}

// publish publishes each order, and every fourth of them once more, as a relay does that was restarted.
func (d *demonstration) publish(worker *process) error {
	orders := make([]order, d.mails)
	for i := range orders {
		orders[i] = order{EventID: watermill.NewULID(), ID: strconv.Itoa(i + 1)}
	}

	for i, o := range orders {
		if i%4 == 0 {
			orders = append(orders, o)
		}
	}

	for _, o := range orders {
		if err := worker.deliver(o); err != nil {
			return err
		}
	}

	d.result.orders, d.result.messages = d.mails, len(orders)

	return nil
}

// replace kills a worker when it waits for the answers to accepted calls, and starts another one.
func (d *demonstration) replace(ctx context.Context, worker *process) (*process, error) {
	select {
	case <-d.api.due:
	case <-worker.ended:
		return nil, worker.problem(nil)
	}

	accepted, withheld := d.api.progress()
	d.say("mails accepted by the API: %d, with %d answers on their way: SIGKILL", accepted, withheld)

	if err := worker.kill(); err != nil {
		return nil, err
	}

	killed := time.Now()

	left, err := d.unfinished(ctx)
	if err != nil {
		return nil, err
	}

	d.result.leases = left.Leased
	d.say("stored and unfinished: %d messages, %d of them leased to the dead worker", toHandle(left), left.Leased)

	worker, err = d.startWorker(ctx)
	if err != nil {
		return nil, err
	}

	d.say("another worker is started; its broker has nothing for it")

	select {
	case <-d.api.again:
		d.say("%.1fs after the kill a lease has run out, and its call is made again", time.Since(killed).Seconds())
	case <-worker.ended:
		return nil, worker.problem(nil)
	}

	return worker, nil
}

func (d *demonstration) awaitEmpty(ctx context.Context, worker *process) error {
	const look = 50 * time.Millisecond

	for {
		left, err := d.unfinished(ctx)
		if err != nil {
			return err
		}

		if toHandle(left) == 0 {
			d.result.left = left.Dead
			d.say("the table has no message left to handle")

			return nil
		}

		select {
		case <-time.After(look):
		case <-worker.ended:
			return worker.problem(nil)
		}
	}
}

// unfinished counts what is stored and not finished.
func (d *demonstration) unfinished(ctx context.Context) (inbox.ConsumerStats, error) {
	stats, err := d.ib.Stats(ctx)
	if err != nil || len(stats.Consumers) == 0 {
		return inbox.ConsumerStats{}, err
	}

	return stats.Consumers[0], nil // there is one consumer only
}

func toHandle(s inbox.ConsumerStats) int64 { return s.Received + s.Leased + s.Waiting }

func (d *demonstration) say(format string, args ...any) {
	fmt.Fprintf(d.stdout, "%6.1fs  %s\n", time.Since(d.begun).Seconds(), fmt.Sprintf(format, args...))
}
