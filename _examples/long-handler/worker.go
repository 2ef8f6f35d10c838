package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
)

// workerSettings is what a worker is told, as JSON in this variable of its environment.
type workerSettings struct {
	DB, API string
	Keys    bool
}

const workerVariable = "LONG_HANDLER_WORKER"

const (
	ordersTopic = "orders"
	consumer    = "mailer"
	concurrency = 4 // calls at a time
	lease       = 2 * time.Second
	acked       = "acked" // what a worker tells of each message
)

func runWorker(ctx context.Context, settings string, stdin io.Reader, stdout, stderr io.Writer) int {
	var s workerSettings

	err := json.Unmarshal([]byte(settings), &s)
	if err == nil {
		err = work(ctx, s, stdin, stdout, watermill.NewSlogLogger(slog.New(slog.NewTextHandler(stderr,
			&slog.HandlerOptions{Level: slog.LevelWarn}))))
	}

	if err != nil {
		fmt.Fprintln(stderr, "worker:", err)

		return exitFailed
	}

	return exitKept
}

// work sends mails until its standard input ends, as it does when the demonstration wants that or has died itself.
func work(ctx context.Context, s workerSettings, stdin io.Reader, stdout io.Writer, logger watermill.LoggerAdapter) (err error) {
	db, ib, err := openInbox(ctx, s.DB, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})

	stored, err := ib.Subscriber(consumer, broker,
		inbox.WithConcurrency(concurrency),
		inbox.WithLease(lease), // how long the messages of a dead worker wait; a call may take longer
		inbox.WithBackoff(300*time.Millisecond, 3*time.Second),
	)
	if err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}) // which logs each 500
	if err != nil {
		return err
	}

	m := &mailer{api: s.API, client: &http.Client{Timeout: callTimeout}, keys: s.Keys}
	router.AddConsumerHandler(consumer, ordersTopic, stored, m.confirmOrder)

	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()

	select {
	case <-router.Running():
	case err := <-ended:
		return err
	}

	err = publishAll(broker, stdin, stdout)

	return errors.Join(err, router.Close(), <-ended)
}

// publishAll stands for the services that publish orders. Publish returns when the broker got its ack, which is when the
// message is stored and long before it is handled.
func publishAll(broker message.Publisher, orders io.Reader, stdout io.Writer) error {
	lines := bufio.NewScanner(orders)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("decoding an order: %w", err)
		}

		msg := message.NewMessage(watermill.NewUUID(), []byte(lines.Text())) // a new UUID each time
		msg.Metadata.Set("event_id", o.EventID)                              // and always the same id

		if err := broker.Publish(ordersTopic, msg); err != nil {
			return err
		}

		fmt.Fprintln(stdout, acked)
	}

	return lines.Err()
}
