// Package properties_test delivers a few events to two consumers in a random order, over several processes, with handlers
// that end in every way a handler can, and compares what is left in the database with a simple model.
package properties_test

import (
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var seed = flag.Uint64("seed", 0, "run this one `seed` instead of new ones")

const (
	histories = 6
	steps     = 250
)

func TestAnyHistoryOfDeliveriesLeavesWhatTheModelSays(t *testing.T) {
	t.Parallel()

	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = seeds[:0]
		for range histories {
			seeds = append(seeds, rand.Uint64())
		}
	}

	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			t.Parallel()

			m := newMachine(t, seed)
			for range steps {
				m.step()
			}

			m.model.compare(t, m.db)
		})
	}
}

var consumers = []string{"billing", "shipping"}

// eventIDs has ids that differ only in what a careless comparison ignores.
func eventIDs() []string {
	return []string{
		"01890a5d-ac96-774b-bcce-b302099a8057", watermill.NewULID(), "order-1", "ORDER-1", "order-1 ", "order-1\x00", "order-1\xff",
	}
}

// machine makes the random steps.
type machine struct {
	t         *testing.T
	random    *rand.Rand
	db        *testdb.DB
	pools     []*sql.DB
	processes []*inbox.Inbox
	options   [][]inbox.Option
	ids       []string
	insert    string
	attempts  int
	model     *model
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()

	db := testdb.Open(t, testdb.PQ)
	db.New(t)

	pgx, err := sql.Open(testdb.PGX.Driver, db.DSN)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { pgx.Close() })

	m := &machine{
		t:       t,
		random:  rand.New(rand.NewPCG(seed, 0)),
		db:      db,
		pools:   []*sql.DB{db.DB, pgx, db.DB, pgx},
		options: [][]inbox.Option{nil, nil, {inbox.WithTxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable})}, {inbox.WithoutPreparedStatements()}},
		ids:     eventIDs(),
		insert:  "INSERT INTO " + db.EffectsTable(t) + " (event) VALUES ($1)",
		model:   newModel(),
	}
	m.processes = make([]*inbox.Inbox, len(m.pools))

	for i := range m.processes {
		m.restart(i)
	}

	return m
}

// restart gives a process a new inbox, which remembers nothing.
func (m *machine) restart(process int) {
	m.t.Helper()

	opts := append([]inbox.Option{
		inbox.WithTable(m.db.Inbox()),
		inbox.WithConsumer(func(msg *message.Message) string { return msg.Metadata["consumer"] }),
	}, m.options[process]...)

	ib, err := inbox.New(m.pools[process], inbox.Postgres, opts...)
	if err != nil {
		m.t.Fatal(err)
	}

	m.processes[process] = ib
}

func (m *machine) step() {
	m.t.Helper()

	switch process := m.random.IntN(len(m.processes)); m.random.IntN(10) {
	case 0:
		m.restart(process)
	case 1, 2, 3: // or soon there are only duplicates
		m.forget(process, m.anyEvent())
	case 4, 5, 6:
		m.deliver(m.plan(process, m.anyEvent()))
	default:
		m.deliver(m.concurrent()...)
	}
}

func (m *machine) anyEvent() event {
	return event{m.random.IntN(len(consumers)), m.random.IntN(len(m.ids))}
}

func (m *machine) plan(process int, ev event) *delivery {
	m.attempts++

	return &delivery{
		event:   ev,
		process: process,
		outcome: outcome(m.random.IntN(int(outcomes))),
		attempt: fmt.Sprintf("attempt %d", m.attempts),
	}
}

// concurrent plans copies of one event, and perhaps of another, to be delivered at once.
func (m *machine) concurrent() []*delivery {
	events := []event{m.anyEvent(), m.anyEvent()}

	group := make([]*delivery, 2+m.random.IntN(3))
	for i := range group {
		group[i] = m.plan(m.random.IntN(len(m.processes)), events[m.random.IntN(4)/3])
	}

	return group
}

func (m *machine) forget(process int, ev event) {
	m.t.Helper()

	known, err := m.processes[process].Forget(m.t.Context(), inbox.Event{Consumer: consumers[ev.consumer], ID: m.ids[ev.id]})
	if err != nil {
		m.t.Fatal(err)
	}

	if err := m.model.forgot(ev, known); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) deliver(group ...*delivery) {
	m.t.Helper()

	done := make(chan struct{})

	go func() {
		defer close(done)

		var running sync.WaitGroup
		for _, d := range group {
			running.Go(func() { d.run(m) })
		}

		running.Wait()
	}()

	select {
	case <-done:
	case <-time.After(time.Minute):
		m.t.Fatal("a delivery waits for a transaction that nobody will end")
	}

	if err := m.model.delivered(group); err != nil {
		m.t.Fatalf("%v: %v", group, err)
	}
}
