package deadletters_test

import (
	"errors"
	"testing"

	"github.com/watermill-inbox/inbox/tests/modes/broker"
	"github.com/watermill-inbox/inbox/tests/modes/process"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A message that kills its process is delivered again to the next one. With a crash guard it is a dead letter after as many
// processes as there are attempts, and the messages behind it are handled.
func TestMessageThatKillsItsProcess(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		broker *broker.Broker // nil is a Pub/Sub of the process's own, whose producer sends again what it has not seen handled
		engine testdb.Engine
		death  string
	}{
		{nil, testdb.PQ, bySIGKILL},
		{nil, testdb.PGX, byExit},
		{nil, testdb.SQLite, bySIGKILL},
		{&broker.RabbitMQ, testdb.PQ, bySIGKILL},
		{&broker.Kafka, testdb.PQ, byExit},
	} {
		name := "gochannel"
		if test.broker != nil {
			name = test.broker.Name
		}

		t.Run(name+" "+test.engine.Name+" "+test.death, func(t *testing.T) {
			t.Parallel()

			db := testdb.Open(t, test.engine)
			db.EffectsTable(t)

			s := newStation(t, db)
			spec := childSpec{
				Engine: test.engine.Name, DSN: db.DSN, Schema: db.Schema, Death: test.death,
				Events: []string{deadly, "order-1", "order-2"},
			}
			spec.Topic.Name = orders

			if test.broker != nil {
				spec.Topic = test.broker.NewTopic(t)
				send(t, spec.Topic, spec.Events...)
			}

			for range n {
				require.Equal(t, "end", process.Start(t, childVariable, spec).AwaitEnd(t), test.death)
				s.requireDead(t)
			}

			p := process.Start(t, childVariable, spec)
			letter := s.awaitDead(t, deadly)
			require.Eventually(t, "the others are handled", func() bool { return len(s.Effects(t)) == 2 })
			p.Stop(t)

			require.Equal(t, "attempts", letter.Attempts, n)
			require.ErrorNames(t, errors.New(letter.LastError), "attempts", "process")
			require.Equal(t, "payload", string(letter.Message.Payload), "order "+deadly)
			s.RequireOnce(t, "order-1", "order-2")
			s.requireRows(t, failures, 0)
		})
	}
}
