// Package brokers shows on real brokers that what a handler writes through the inbox is there exactly once: after
// nacks, lost acks, killed processes, redeployments, moves from one broker to another, and outages of the broker or of
// the database. The scenarios know nothing of the brokers; each broker has its adapter in a file of its own.
package brokers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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

	stop, err := startOwnPostgres()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	goleak.VerifyTestMain(m,
		goleak.IgnoreCurrent(), // what watches over that server
		goleak.Cleanup(func(code int) {
			if err := stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)

				code = max(code, 1)
			}

			os.Exit(code)
		}),
		// Updates sarama's metrics for as long as the process lives.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
	)
}

// startOwnPostgres gives the tests of this package a PostgreSQL server of their own in place of the shared one.
// watermill-sql's subscriber passes no message on while a transaction that is older than it is open, in whatever
// database of the server, so another package's test could hold it up for as long as it liked.
func startOwnPostgres() (stop func() error, err error) {
	dir, err := os.MkdirTemp("", "inbox-brokers-")
	if err != nil {
		return nil, err
	}

	server := servers.NewPostgres(dir)
	if err := server.Start(context.Background()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}

	return func() error {
		return errors.Join(server.Stop(context.Background()), os.RemoveAll(dir))
	}, os.Setenv(servers.Variable("postgres"), server.Addr())
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
