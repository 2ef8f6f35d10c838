// Package brokers shows on real brokers that what a handler writes through the inbox is there exactly once: after
// nacks, lost acks, killed processes, redeployments, moves from one broker to another, and outages of the broker or of
// the database. The scenarios know nothing of the brokers; each broker has its adapter in a file of its own.
package brokers

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/servers"
)

func TestMain(m *testing.M) {
	if spec, ok := os.LookupEnv(childVariable); ok {
		os.Exit(childMain(spec))
	}

	flag.Parse()
	runManyAtOnce()
	startSpawner()
	goleak.VerifyTestMain(m,
		goleak.IgnoreCurrent(),
		// Updates sarama's metrics for as long as the process lives.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// startSpawner has package servers start its first process, and with it the goroutine that starts processes for as long
// as this one lives.
func startSpawner() {
	cmd := exec.Command("true")
	if err := errors.Join(servers.StartTied(cmd, syscall.SIGKILL), cmd.Wait()); err != nil {
		panic(err)
	}
}

// runManyAtOnce sets -parallel unless the caller did: the tests wait for brokers most of the time.
func runManyAtOnce() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })

	if !given {
		if err := flag.Set("test.parallel", "12"); err != nil {
			panic(err)
		}
	}
}
