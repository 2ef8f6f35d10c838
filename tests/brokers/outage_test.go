package brokers

import (
	"context"
	"testing"

	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// The database goes away under consumers of every broker.
func TestDatabaseThatIsDownForAWhile(t *testing.T) {
	t.Parallel()

	server := startServer(t, "postgres")

	var (
		fixtures  []*fixture
		processes []*process
	)

	for _, b := range brokers {
		db := testdb.OpenOn(t, testdb.PQ, server.Addr())

		var r route
		if b == watermillSQL { // down together
			r = newRouteOn(t, b, server.Addr(), db)
		} else {
			r = newRoute(t, b, db)
		}

		f := newFixtureOn(t, r, db)
		fixtures = append(fixtures, f)
		processes = append(processes, f.startProcess(t, nowhere, 0, nil))
	}

	for _, end := range outages {
		for i, f := range fixtures {
			processes[i].send(t, f.newEvents(20)...)
		}

		await(t, "some events to be handled", func() bool { return processes[0].told.handled() >= len(fixtures[0].events)-10 })
		end.now(t, server)

		for i, f := range fixtures {
			_, _, before := processes[i].told.sums()
			processes[i].send(t, f.newEvents(20)...)

			if f.broker() == watermillSQL {
				continue // it has nothing to deliver
			}

			await(t, f.Broker+" to deliver in vain", func() bool {
				_, _, failed := processes[i].told.sums()

				return failed > before
			})
		}

		startAgain(t, server)

		for i, f := range fixtures {
			await(t, f.Broker+" to deliver everything after the database was "+end.how, func() bool {
				return processes[i].told.handled() == len(f.events)
			})
		}
	}

	for i, f := range fixtures {
		processes[i].stop(t)
		f.requireOnce(t)
	}
}

// The broker goes away under a producer and a consumer. What makes each broker's client come back is in the broker's
// file; beyond that it takes a consumer that is started again when its subscription ends.
func TestBrokerThatIsDownForAWhile(t *testing.T) {
	t.Parallel()

	for _, b := range brokers {
		if b.inProcess() {
			continue // it is down when its consumer is: see crash_test.go
		}

		t.Run(b.name, func(t *testing.T) {
			t.Parallel()

			server := startServer(t, b.server)
			db := testdb.Open(t, testdb.PQ)
			brokerDB := db

			if b == watermillSQL { // the inbox's stays up
				brokerDB = testdb.OpenOn(t, testdb.PQ, server.Addr())
			}

			f := newFixtureOn(t, newRouteOn(t, b, server.Addr(), brokerDB), db)
			p := f.startProcess(t, nowhere, 0, nil)

			for _, end := range outages {
				p.send(t, f.newEvents(20)...)
				await(t, "the broker to have some events", func() bool { return int(p.published.Load()) >= len(f.events)-10 })
				end.now(t, server)

				before := p.refused.Load()
				p.send(t, f.newEvents(20)...)
				await(t, "publishing to fail", func() bool { return p.refused.Load() > before })

				startAgain(t, server)
				await(t, "everything to be delivered after the broker was "+end.how, func() bool {
					return p.told.handled() == len(f.events)
				})
			}

			p.stop(t)
			f.requireOnce(t)
		})
	}
}

// outages are the ways in which a server goes down.
var outages = []struct {
	how string
	now func(t *testing.T, server servers.Server)
}{
	{"stopped", func(t *testing.T, server servers.Server) {
		t.Helper()

		if err := server.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}},
	{"killed", func(t *testing.T, server servers.Server) {
		t.Helper()

		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	}},
}

// startServer starts a server that this test alone uses.
func startServer(t *testing.T, name string) servers.Server {
	t.Helper()

	server, err := servers.New(name, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	startAgain(t, server)

	return server
}

func startAgain(t *testing.T, server servers.Server) {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()

	if err := server.Start(ctx); err != nil {
		t.Fatal(err)
	}
}
