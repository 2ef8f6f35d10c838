package brokers

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// childVariable holds the childSpec of a process that is a consumer instead of a test.
const childVariable = "INBOX_TEST_BROKERS_CHILD"

// childSpec is what a consumer's process is told at its start. Afterwards it reads events to send from its standard
// input, one a line, ends when that ends, and tells on its standard output what happened.
type childSpec struct {
	Route   route
	DSN     string
	Inbox   string // table
	Effects string // table
	Output  route  // without a topic when the handler returns nothing
	// Hang is where the process stops for ever, in the handling of the event after HangAfter others.
	Hang      point
	HangAfter int64
}

// point is a step of handling an event.
type point string

const (
	nowhere      point = ""
	beforeCommit point = "before_commit" // the handler's row is written
	afterCommit  point = "after_commit"  // not published and not acked
)

// childMain runs the consumer, and returns the exit code.
func childMain(spec string) int {
	c := &childProcess{log: watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))}

	err := json.Unmarshal([]byte(spec), &c.childSpec)
	if err == nil {
		err = c.run()
	}

	if err != nil {
		c.log.Error("Child failed", err, nil)

		return 1
	}

	return 0
}

type childProcess struct {
	childSpec

	handled atomic.Int64
	log     watermill.LoggerAdapter
}

func (c *childProcess) run() error {
	db, err := sql.Open("postgres", c.DSN)
	if err != nil {
		return err
	}
	defer db.Close()

	db.SetMaxOpenConns(poolSize)

	ib, err := inbox.New(db, inbox.Postgres, inbox.WithTable(c.Inbox), inbox.WithLogger(c.log), inbox.WithHooks(inbox.Hooks{
		Processed: func(_ context.Context, ev inbox.Event) {
			c.hangAt(afterCommit, ev.ID)
			c.tell("processed", ev.ID)
		},
		Duplicate: func(_ context.Context, ev inbox.Event) { c.tell("duplicate", ev.ID) },
		Failed:    func(_ context.Context, ev inbox.Event, _ error) { c.tell("failed", ev.ID) },
	}))
	if err != nil {
		return err
	}

	// Most brokers deliver again at once what failed, which keeps a processor busy while the database is down.
	retry := middleware.Retry{MaxRetries: 3, InitialInterval: 50 * time.Millisecond, Multiplier: 2, Logger: c.log}
	service := &consumer{
		route: c.Route, inbox: ib, handle: c.handle, output: c.Output.Topic, log: c.log,
		around: []message.HandlerMiddleware{retry.Middleware},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})

	go func() {
		defer close(ended)
		service.supervise(ctx)
	}()

	defer func() {
		cancel()
		<-ended
	}()

	if c.Route.broker().inProcess() && c.Output.Topic != "" {
		stop, err := collect(c.Output, c.log, func(event, uuid string) { c.tell("output", event+" "+uuid) })
		if err != nil {
			return err
		}
		defer stop()
	}

	return c.produce(os.Stdin)
}

// produce publishes the events that it reads, one after another, each until the broker has taken it, as the relay of an
// outbox does.
func (c *childProcess) produce(from io.Reader) (err error) {
	pub, err := c.Route.publisher(c.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pub.Close()) }()

	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()

	events := bufio.NewScanner(from)
	for events.Scan() {
		event := events.Text()

		for err := pub.Publish(c.Route.Topic, newMessage(event)); err != nil; err = pub.Publish(c.Route.Topic, newMessage(event)) {
			c.log.Error("Publishing failed", err, watermill.LogFields{"event": event})
			c.tell("refused", event)
			<-pause.C
		}

		c.tell("published", event)
	}

	return events.Err()
}

func (c *childProcess) handle(msg *message.Message) (outputs []*message.Message, err error) {
	if c.Output.Topic == "" {
		err = record(msg, c.Effects, "")
	} else {
		outputs, err = invoice(msg, c.Effects)
	}

	if err == nil {
		c.hangAt(beforeCommit, string(msg.Payload))
	}

	return outputs, err
}

// hangAt tells the parent that the point is reached, and leaves the process there to be killed.
func (c *childProcess) hangAt(p point, event string) {
	if c.Hang == p && c.handled.Add(1) > c.HangAfter {
		c.tell("hangs", event)
		select {}
	}
}

// tell writes a line at once, so that everything told before a kill is read.
func (c *childProcess) tell(what, about string) {
	fmt.Fprintf(os.Stdout, "%s %s\n", what, about)
}
