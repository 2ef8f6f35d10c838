package servers

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
)

// NATS is a NATS server with JetStream, without authentication.
type NATS struct{ instance }

// NewNATS returns a NATS server which keeps its streams below dir.
func NewNATS(dir string) *NATS {
	return &NATS{newInstance("nats", dir)}
}

// Addr returns a URL.
func (n *NATS) Addr() string { return "nats://" + n.hostPort() }

// Start starts the server and returns once it answers, see [Server].
func (n *NATS) Start(ctx context.Context) error { return n.start(ctx, n.launch) }

func (n *NATS) launch(ctx context.Context) error {
	path, err := exec.LookPath("nats-server")
	if err != nil {
		return err
	}
	return n.run(ctx, command{
		path:  path,
		args:  []string{"-a", "127.0.0.1", "-p", strconv.Itoa(n.port), "-js", "-sd", n.path("data")},
		ready: n.ping,
	})
}

// ping waits for the greeting, which the server sends on its own.
func (n *NATS) ping(ctx context.Context) error {
	greeting := make([]byte, len("INFO {"))
	if err := exchange(ctx, n.port, nil, greeting); err != nil {
		return err
	}
	if string(greeting) != "INFO {" {
		return fmt.Errorf("unexpected greeting %q", greeting)
	}
	return nil
}
