package brokers

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

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
	}))
	if err != nil {
		return err
	}

	service := &consumer{route: c.Route, inbox: ib, handle: c.handle, output: c.Output.Topic, log: c.log}

	pub, err := c.Route.publisher(c.log)
	if err != nil {
		return err
	}
	defer pub.Close()

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

	events := bufio.NewScanner(os.Stdin)
	for events.Scan() {
		if err := pub.Publish(c.Route.Topic, newMessage(events.Text())); err != nil {
			return err
		}
	}

	return events.Err()
}

func (c *childProcess) handle(msg *message.Message) ([]*message.Message, error) {
	if err := record(msg, c.Effects); err != nil {
		return nil, err
	}

	c.hangAt(beforeCommit, string(msg.Payload))

	if c.Output.Topic == "" {
		return nil, nil
	}

	return []*message.Message{newOutput(msg)}, nil
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
