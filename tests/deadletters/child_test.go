package deadletters_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/modes/broker"
	"github.com/watermill-inbox/inbox/tests/modes/process"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// childVariable holds the childSpec of a process that is a service instead of a test.
const childVariable = "INBOX_TEST_DEADLETTERS_CHILD"

// childSpec is what a service's process is told at its start. It ends when its standard input does.
type childSpec struct {
	Engine, DSN, Schema string
	Topic               broker.Topic
	Events              []string // to publish where the broker is the process's own
	Death               string   // of the process that handles the event deadly
}

const (
	deadly    = "order-deadly"
	bySIGKILL = "signal: killed"
	byExit    = "exit status 42"
)

func (c childSpec) run() error {
	engine := testdb.All[slices.IndexFunc(testdb.All, func(e testdb.Engine) bool { return e.Name == c.Engine })]

	db, err := sql.Open(engine.Driver, c.DSN)
	if err != nil {
		return err
	}
	defer db.Close()

	s := &testdb.DB{DB: db, Engine: engine, DSN: c.DSN, Schema: c.Schema}

	ib, err := inbox.New(db, engine.Dialect, inbox.WithTable(s.Inbox()), inbox.WithMaxAttempts(n), inbox.WithCrashGuard())
	if err != nil {
		return err
	}

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}

	// One event at a time: those in flight beside the deadly one would be counted with it.
	own := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})

	var sub message.Subscriber = own

	if c.Topic.Broker != "" {
		if sub, err = c.Topic.Subscriber(); err != nil {
			return err
		}
	}

	router.AddMiddleware(ib.Middleware)
	router.AddConsumerHandler(billing, c.Topic.Name, sub, func(msg *message.Message) error {
		if msg.UUID == deadly {
			c.die()
		}

		return effect(s, msg)
	})

	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()

	<-router.Running()

	if c.Topic.Broker == "" {
		for _, event := range c.Events {
			if err := own.Publish(c.Topic.Name, newOrder(event)); err != nil {
				return err
			}
		}
	}

	if err := process.UntilStopped(); err != nil {
		return err
	}

	return errors.Join(router.Close(), <-ended)
}

func (c childSpec) die() {
	if c.Death == byExit {
		os.Exit(42)
	}

	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)

	select {} // a signal takes its time
}
