package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
)

// service is what a process of the demonstration does, until ctx ends.
type service func(ctx context.Context, s *setting) error

var services = map[string]service{
	"producer": produce,
	"relay":    relay,
	"consumer": consume,
}

// setting is what a service works with.
type setting struct {
	config
	db     *sql.DB
	logger watermill.LoggerAdapter
	tell   func(line string) // the demonstration
	passed atomic.Int64      // messages, see holdAt
}

// What services tell.
const (
	running   = "running"
	published = "published"
	holding   = "holding"
)

// serve runs a service until its standard input ends, as it does when the demonstration wants that or has died itself.
func serve(ctx context.Context, cfg config, run service, stdout io.Writer, logger watermill.LoggerAdapter) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()

	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // whatever ends it
		stop()
	}()

	db, err := openDatabase(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	return run(ctx, &setting{config: cfg, db: db, logger: logger, tell: func(line string) { fmt.Fprintln(stdout, line) }})
}

// holdHere is called where a crash would hurt most. At the chosen message it tells the demonstration, which kills the process.
func (s *setting) holdHere() {
	if s.passed.Add(1) == int64(s.hold) {
		s.tell(holding)
		select {}
	}
}
