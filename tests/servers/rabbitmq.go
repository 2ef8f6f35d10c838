package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// rabbitmqScript starts the server as the current user. The rabbitmq-server in
// PATH on Debian is a wrapper around it that insists on the system user
// rabbitmq and the system directories.
const rabbitmqScript = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// RabbitMQ is a RabbitMQ node without plugins, with the user guest, password
// guest. It has an Erlang port mapper (epmd) and a cookie of its own, and so
// knows nothing of other nodes on the machine.
type RabbitMQ struct {
	instance
	epmdPort int
	distPort int
}

// NewRabbitMQ returns a RabbitMQ server which keeps its data below dir.
func NewRabbitMQ(dir string) *RabbitMQ {
	return &RabbitMQ{
		instance: newInstance("rabbitmq", dir),
		epmdPort: reservePort(),
		distPort: reservePort(),
	}
}

// Addr returns a URL.
func (r *RabbitMQ) Addr() string { return fmt.Sprintf("amqp://guest:guest@%s/", r.hostPort()) }

// Start starts the server and returns once it answers, see [Server].
func (r *RabbitMQ) Start(ctx context.Context) error { return r.start(ctx, r.launch) }

func (r *RabbitMQ) launch(ctx context.Context) error {
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return err
	}
	// The Erlang VM would start an epmd itself, as a daemon that outlives
	// everything. It does not when one answers on the port.
	err = r.run(ctx, command{
		path: epmd,
		args: []string{"-address", "127.0.0.1", "-port", strconv.Itoa(r.epmdPort)},
		ready: func(ctx context.Context) error {
			namesRequest := []byte{0, 1, 'n'}
			return exchange(ctx, r.epmdPort, namesRequest, make([]byte, 4))
		},
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.path("home"), 0o700); err != nil {
		return err
	}
	return r.run(ctx, command{path: rabbitmqScript, env: r.environ(), ready: r.ping})
}

func (r *RabbitMQ) environ() []string {
	return []string{
		"HOME=" + r.path("home"),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		fmt.Sprintf("ERL_EPMD_PORT=%d", r.epmdPort),
		fmt.Sprintf("RABBITMQ_NODENAME=inbox%d@localhost", r.port),
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		fmt.Sprintf("RABBITMQ_NODE_PORT=%d", r.port),
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", r.distPort),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		// Makes the script exec the Erlang VM instead of supervising it, so
		// that signals reach the VM.
		"RUNNING_UNDER_SYSTEMD=true",
		"RABBITMQ_MNESIA_BASE=" + r.path("data"),
		"RABBITMQ_LOG_BASE=" + r.path("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_CONF_ENV_FILE=" + r.path("rabbitmq-env.conf"),
		"RABBITMQ_CONFIG_FILE=" + r.path("rabbitmq"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + r.path("advanced"),
		"RABBITMQ_GENERATED_CONFIG_DIR=" + r.path("generated"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + r.path("enabled_plugins"),
		"RABBITMQ_PID_FILE=" + r.path("rabbitmq.pid"),
		"RABBITMQ_FEATURE_FLAGS_FILE=" + r.path("data", "feature_flags"),
	}
}

// ping opens an AMQP 0-9-1 connection as far as the first frame of the server,
// a method frame with Connection.Start.
func (r *RabbitMQ) ping(ctx context.Context) error {
	frame := make([]byte, 1)
	if err := exchange(ctx, r.port, []byte("AMQP\x00\x00\x09\x01"), frame); err != nil {
		return err
	}
	if frame[0] != 1 {
		return errors.New("no AMQP 0-9-1 server on the port")
	}
	return nil
}
