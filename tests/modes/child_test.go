package modes_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/modes/broker"
	"github.com/watermill-inbox/inbox/tests/modes/process"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// childVariable holds the childSpec of a process that is a service instead of a test.
const childVariable = "INBOX_TEST_MODES_CHILD"

// childSpec is what a service's process is told at its start.
type childSpec struct {
	Engine, DSN, Schema string
	Topic, Invoices     broker.Topic
	Mode                mode
	ByInTx              bool
	// Hang is where the process stops for ever, in the handling of the event after HangAfter others. It says so on its
	// standard output.
	Hang      point
	HangAfter int64
}

// point is a step of handling an event.
type point string

const (
	nowhere      point = ""
	beforeCommit point = "before the commit" // the handler's row is written
	afterCommit  point = "after the commit"  // not published and not acked
)

func (c childSpec) run() error {
	engine := testdb.All[slices.IndexFunc(testdb.All, func(e testdb.Engine) bool { return e.Name == c.Engine })]

	db, err := sql.Open(engine.Driver, c.DSN)
	if err != nil {
		return err
	}
	defer db.Close()

	db.SetMaxOpenConns(poolSize)

	sub, err := c.Topic.Subscriber()
	if err != nil {
		return err
	}

	pub, err := c.Invoices.Publisher()
	if err != nil {
		return err
	}

	s := &service{
		DB: &testdb.DB{DB: db, Engine: engine, DSN: c.DSN, Schema: c.Schema}, mode: c.Mode,
		sub: sub, pub: pub, topic: c.Topic.Name, publishTo: c.Invoices.Name, handlerName: billing,
	}
	handler := byTx(s.DB)

	if c.ByInTx {
		handler = byInTx(s.DB)
	}

	var handled, committed atomic.Int64

	s.handle = func(msg *message.Message) ([]*message.Message, error) {
		outputs, err := handler(msg)
		c.hangAt(beforeCommit, &handled)

		return outputs, err
	}
	s.options = []inbox.Option{inbox.WithHooks(inbox.Hooks{
		Processed: func(context.Context, inbox.Event) { c.hangAt(afterCommit, &committed) },
	})}

	router, err := s.router()
	if err != nil {
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()

	return errors.Join(process.UntilStopped(), router.Close(), <-ended, pub.Close())
}

// hangAt tells the parent that the point is reached, and leaves the process there to be killed.
func (c childSpec) hangAt(p point, passed *atomic.Int64) {
	if c.Hang == p && passed.Add(1) > c.HangAfter {
		fmt.Println("hangs", p)
		select {}
	}
}
