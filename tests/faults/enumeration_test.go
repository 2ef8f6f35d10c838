// Package faults_test delivers an event while the database fails under it: at every boundary, in every way, and in every
// combination of two failures. Whatever happens, the handler's effects are committed once, and its outputs are sent
// with the UUIDs that were committed with them.
package faults_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox/tests/faults/faultdriver"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenario is how the events of an enumeration are delivered.
type scenario struct {
	name       string
	restart    bool // every redelivery has a new Inbox on new connections
	unprepared bool
	outbox     bool
	warm       bool // the process has handled events, and skipped one, before the faults begin
	duplicate  bool // the event was handled before the faults begin
	// pairs says how many of the pairs are run, one out of that many; 1 is all of them.
	pairs map[testdb.Engine]int
}

// The choice of pairs is the same in every run.
const seed = 20240229

var all = flag.Bool("all", false, "run every pair of faults in every scenario on every engine")

func TestFaultsWhileAnEventIsDelivered(t *testing.T) {
	t.Parallel()

	every := map[testdb.Engine]int{testdb.PQ: 1, testdb.PGX: 1, testdb.SQLite: 1}
	some := map[testdb.Engine]int{testdb.PQ: 10, testdb.PGX: 20, testdb.SQLite: 20}
	scenarios := []scenario{
		{name: "redelivered_to_the_same_process", pairs: map[testdb.Engine]int{testdb.PQ: 1, testdb.PGX: 12, testdb.SQLite: 12}},
		{name: "redelivered_after_a_restart", restart: true, pairs: some},
		{name: "on_warm_connections", warm: true, pairs: some},
		{name: "without_prepared_statements", unprepared: true, pairs: some},
		{name: "with_an_outbox", outbox: true, pairs: some},
		{name: "of_a_duplicate", duplicate: true, pairs: some},
		{name: "of_a_duplicate_among_others", duplicate: true, warm: true, pairs: every},
	}

	values := routerValues(t)

	for _, engine := range testdb.All {
		for _, s := range scenarios {
			t.Run(engine.Name+"/"+s.name, func(t *testing.T) {
				t.Parallel()

				enumerate(t, newStage(t, engine, s, values), s.pairs[engine])
			})
		}
	}
}

// enumerate runs one event for each fault and for each pair of faults. How many boundaries there are shows without
// faults, and where the second of a pair can be shows with the first alone.
func enumerate(t *testing.T, s *stage, oneOutOf int) {
	t.Helper()

	random := rand.New(rand.NewPCG(seed, 0))
	boundaries := s.run()
	singles, pairs, skipped := 0, 0, 0

	for at := 1; at <= boundaries; at++ {
		for _, kind := range faultdriver.Kinds {
			first := faultdriver.Fault{At: at, Kind: kind}
			last := s.run(first)
			singles++

			for at := at + 1; at <= last; at++ {
				for _, kind := range faultdriver.Kinds {
					if !*all && random.IntN(oneOutOf) > 0 {
						skipped++

						continue
					}

					s.run(first, faultdriver.Fault{At: at, Kind: kind})
					pairs++
				}
			}
		}
	}

	s.requireOnce()
	t.Logf("%d boundaries, %d single faults, %d pairs of faults, %d pairs left out", boundaries, singles, pairs, skipped)
}
