// Package leaks looks for goroutines that the tests of a package leave behind.
package leaks

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
)

// Verify runs the tests of a package and fails when they leave goroutines behind.
func Verify(m *testing.M, opts ...goleak.Option) {
	// The goroutine that starts servers and children lives as long as the process: have it there before looking.
	cmd := exec.Command("true")
	if err := errors.Join(servers.StartTied(cmd, syscall.SIGKILL), cmd.Wait()); err != nil {
		panic(err)
	}

	goleak.VerifyTestMain(m, append(opts, goleak.IgnoreCurrent())...)
}

// OfBrokerClients are what clients of brokers leave behind by themselves.
func OfBrokerClients() []goleak.Option {
	return []goleak.Option{
		// Updates sarama's metrics for as long as the process lives.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// Of RabbitMQ's client, and outlive the closing of a connection by more than the check waits on a busy machine.
		goleak.IgnoreAnyFunction("github.com/rabbitmq/amqp091-go.(*Connection).heartbeater"),
		goleak.IgnoreAnyFunction("github.com/rabbitmq/amqp091-go.(*Connection).reader"),
	}
}
