// Package servers runs the real servers which the tests talk to: PostgreSQL,
// RabbitMQ, NATS with JetStream, and Kafka.
//
// Every server is a plain process of the machine, without containers. It
// listens on 127.0.0.1 only, keeps everything it writes below one directory,
// and dies with the process which started it. Servers of the same kind run
// beside each other, so a test that has to crash or restart one takes a
// private server, while the other tests share those announced in the
// environment (see [FromEnv]).
//
// [Ensure] installs what a server needs. Starting one never installs anything.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	startTimeout = 90 * time.Second
	stopTimeout  = 30 * time.Second
)

// Server is one server process with its data.
//
// The methods are safe for concurrent use. A server can be started again after
// Stop and after Kill: it then has the same address and the same data.
type Server interface {
	// Name is the kind of server, such as "postgres".
	Name() string

	// Addr is what a client connects to: a DSN, a URL, or host:port. It is
	// known before the first start and never changes.
	Addr() string

	// Start returns once the server answers requests. Without a deadline in
	// ctx it gives up after 90 seconds. The error carries the end of the log.
	Start(ctx context.Context) error

	// Stop shuts the server down the way an operator would. If that has not
	// finished by the deadline of ctx (30 seconds if it has none), the server
	// is killed and the error says so. Stopping a stopped server does nothing.
	Stop(ctx context.Context) error

	// Kill ends the server and all its children with SIGKILL, as a crash
	// would, and returns when they are gone. What the server had handed to
	// the operating system survives; this is no power cut.
	Kill() error

	// LogFile is where the output of the server goes. Restarts append to it.
	LogFile() string
}

var constructors = []struct {
	name string
	open func(dir string) Server
}{
	{"postgres", func(dir string) Server { return NewPostgres(dir) }},
	{"rabbitmq", func(dir string) Server { return NewRabbitMQ(dir) }},
	{"nats", func(dir string) Server { return NewNATS(dir) }},
	{"kafka", func(dir string) Server { return NewKafka(dir) }},
}

// Names lists the kinds of servers this package can run.
func Names() []string {
	names := make([]string, len(constructors))
	for i, c := range constructors {
		names[i] = c.name
	}
	return names
}

// New returns a server of the named kind which keeps its data below dir.
func New(name, dir string) (Server, error) {
	for _, c := range constructors {
		if c.name == name {
			return c.open(dir), nil
		}
	}
	return nil, fmt.Errorf("unknown server %q, known are: %s", name, strings.Join(Names(), ", "))
}

// Variable is the environment variable with the address of the shared server
// of the named kind, such as INBOX_TEST_POSTGRES.
func Variable(name string) string {
	return "INBOX_TEST_" + strings.ToUpper(name)
}

// FromEnv returns the address of the shared server of the named kind.
func FromEnv(name string) (string, error) {
	if addr := os.Getenv(Variable(name)); addr != "" {
		return addr, nil
	}
	return "", fmt.Errorf("%s is not set: run `make test`, or set it to the address of a %s server that already runs",
		Variable(name), name)
}

// instance is what all servers have in common. The last of its processes is
// the server itself; those before it are processes it depends on.
type instance struct {
	name string
	dir  string
	port int

	mu        sync.Mutex
	processes []*process
}

func newInstance(name, dir string) instance {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return instance{name: name, dir: dir, port: reservePort()}
}

func (s *instance) Name() string { return s.name }

func (s *instance) LogFile() string { return s.path(s.name + ".log") }

func (s *instance) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *instance) hostPort() string { return loopback(s.port) }

// start runs launch, which brings the processes up with run, runTool and add.
func (s *instance) start(ctx context.Context, launch func(context.Context) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if n := len(s.processes); n > 0 && s.processes[n-1].alive() {
		return fmt.Errorf("starting %s: it is already running", s.name)
	}
	if err := s.killAll(); err != nil {
		return fmt.Errorf("starting %s: what is left of it: %w", s.name, err)
	}

	ctx, cancel := withDefaultTimeout(ctx, startTimeout)
	defer cancel()

	err := os.MkdirAll(s.dir, 0o755)
	if err == nil {
		err = launch(ctx)
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w%s", s.name, errors.Join(err, s.killAll()), logTail(s.LogFile()))
	}
	return nil
}

// run starts a process that belongs to the server and waits until it is ready.
func (s *instance) run(ctx context.Context, c command) error {
	p, err := spawn(c, s.LogFile())
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return p.awaitReady(ctx)
}

// runTool runs a program that prepares the data of the server to its end.
func (s *instance) runTool(ctx context.Context, c command) error {
	p, err := spawn(c, s.LogFile())
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", filepath.Base(c.path), errors.Join(ctx.Err(), p.kill()))
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(c.path), p.err)
	}
	return nil
}

func (s *instance) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	ctx, cancel := withDefaultTimeout(ctx, stopTimeout)
	defer cancel()

	var failed error
	for _, p := range slices.Backward(s.processes) {
		if err := p.stop(ctx); err != nil && failed == nil {
			failed = fmt.Errorf("stopping %s: %w%s", s.name, err, logTail(s.LogFile()))
		}
	}
	s.processes = nil
	return failed
}

func (s *instance) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if err := s.killAll(); err != nil {
		return fmt.Errorf("killing %s: %w", s.name, err)
	}
	return nil
}

func (s *instance) killAll() error {
	var failed error
	for _, p := range slices.Backward(s.processes) {
		if err := p.kill(); err != nil && failed == nil {
			failed = err
		}
	}
	s.processes = nil
	return failed
}

func withDefaultTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}
