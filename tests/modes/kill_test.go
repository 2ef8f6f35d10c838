package modes_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/modes/broker"
	"github.com/watermill-inbox/inbox/tests/modes/process"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A service on a real broker is killed in one mode and started in the other, again and again, then works in both at the same
// time until one of the processes is killed.
func TestKilledProcessesInAlternatingModes(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		broker broker.Broker
		engine testdb.Engine
		byInTx bool
	}{
		{broker.RabbitMQ, testdb.PQ, false},
		{broker.RabbitMQ, testdb.SQLite, true},
		{broker.Kafka, testdb.PGX, false},
		{broker.NATS, testdb.PQ, true},
	} {
		t.Run(test.broker.Name+" "+test.engine.Name, func(t *testing.T) {
			t.Parallel()

			db := testdb.Open(t, test.engine)
			db.EffectsTable(t)
			db.New(t)

			s := newKilled(t, db, test.broker)
			s.spec.ByInTx = test.byInTx

			const perLife = 8

			var ids []string

			for _, life := range []struct {
				mode  mode
				hang  point
				after int64
			}{
				{sameTx, afterCommit, 4}, // the event is unacked and its invoice unpublished
				{stored, beforeCommit, 4},
				{sameTx, beforeCommit, 4},
				{stored, afterCommit, 4},
				{sameTx, afterCommit, 2},
			} {
				s.send(t, ids...)
				fresh := numbered(1+len(ids), perLife) // since all that is older may be stored
				s.send(t, fresh...)
				ids = append(ids, fresh...)

				p := s.start(t, life.mode, life.hang, life.after)
				require.Equal(t, "the child", require.Await(t, "a point to kill it", p.Lines), "hangs "+string(life.hang))
				p.Kill(t)
			}

			more := numbered(1+len(ids), perLife)
			s.send(t, more...)
			ids = append(ids, more...)

			doomed := s.start(t, stored, nowhere, 0)
			last := s.start(t, sameTxWithBacklog, nowhere, 0)
			before := len(db.Effects(t))
			require.Eventually(t, "one of them works on", func() bool { return len(db.Effects(t)) > before })
			doomed.Kill(t)
			s.send(t, ids...)
			s.send(t, "last")

			require.Eventually(t, "the last one is handled", func() bool { return db.Effects(t)["last"] == 1 })
			s.awaitNothingStored(t)

			all := append(ids, "last")
			s.requirePublished(t, all...)
			s.RequireOnce(t, all...)
			last.Stop(t)
			s.RequireOnce(t, all...)
		})
	}
}

// killed is a service on a real broker whose processes are killed.
type killed struct {
	*world
	spec childSpec
}

func newKilled(t *testing.T, db *testdb.DB, b broker.Broker) *killed {
	t.Helper()

	s := &killed{
		world: &world{DB: db},
		spec: childSpec{
			Engine: db.Engine.Name, DSN: db.DSN, Schema: db.Schema, Topic: b.NewTopic(t), Invoices: b.NewTopic(t),
		},
	}
	sub, err := s.spec.Invoices.Subscriber()
	require.OK(t, err)
	t.Cleanup(func() { require.OK(t, sub.Close()) })

	s.published = running.Collect(t, sub, s.spec.Invoices.Name)

	return s
}

func (s *killed) send(t *testing.T, ids ...string) {
	t.Helper()

	messages := make([]*message.Message, len(ids))
	for i, id := range ids {
		messages[i] = newOrder(id)
	}

	s.spec.Topic.Send(t, messages...)
}

func (s *killed) start(t *testing.T, m mode, hang point, after int64) *process.Process {
	t.Helper()

	spec := s.spec
	spec.Mode, spec.Hang, spec.HangAfter = m, hang, after

	return process.Start(t, childVariable, spec)
}

// What a process had in its hands when it was killed belongs to it until its lease ends. Then a redelivery in
// same-transaction mode handles it, without a backlog.
func TestRedeliveryTakesOverFromADeadProcess(t *testing.T) {
	t.Parallel()

	forEachEngine(t, "when its lease has ended", func(t *testing.T, db *testdb.DB) {
		s := newKilled(t, db, broker.RabbitMQ)
		s.send(t, "order-1")

		p := s.start(t, stored, beforeCommit, 0)
		require.Equal(t, "the child", require.Await(t, "the handler", p.Lines), "hangs "+string(beforeCommit))
		p.Kill(t)
		require.Equal(t, "stored", s.stored(t), 1)
		s.RequireOnce(t)

		w := newWorld(t, db)
		// The topic is a part of the event, and of where it is stored.
		d := w.deploy(t, sameTx, func(service *service) { service.topic = s.spec.Topic.Name })
		require.Eventually(t, "it is taken over", func() bool {
			d.deliver(t, "order-1")

			return len(db.Effects(t)) == 1
		})
		w.requirePublished(t, "order-1")
		d.stop(t)
		w.drain(t, func(service *service) { service.topic = s.spec.Topic.Name })
		require.Equal(t, "runs", w.runs.of("order-1"), 1)
		w.RequireOnce(t, "order-1")
	})
}
