package deadletters_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/modes/broker"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// A message that always fails is delivered as often as it may fail, and then its broker goes on: RabbitMQ does not spin, and
// Kafka's partition is not blocked.
func TestBrokerGoesOn(t *testing.T) {
	t.Parallel()

	for _, b := range broker.All {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()

			db := testdb.Open(t, testdb.PQ)
			db.EffectsTable(t)

			topic := b.NewTopic(t)
			sub, err := topic.Subscriber()
			require.OK(t, err)

			s := newStation(t, db, inbox.WithMaxAttempts(n))
			s.sub, s.topic = sub, topic.Name
			s.handle = func(run int, msg *message.Message) ([]*message.Message, error) {
				switch {
				case msg.UUID == "order-2":
					return nil, errRefused
				case msg.UUID == "order-4" && run <= 2*n:
					return nil, errors.New("the database of customers is away")
				default:
					return nil, nil
				}
			}
			s.start(t)

			send(t, topic, "order-1", "order-2", "order-3", "order-4", "order-5")
			require.Eventually(t, "the last one is handled", func() bool { return s.Effects(t)["order-5"] == 1 })

			s.RequireOnce(t, "order-1", "order-3", "order-5")
			letters := s.requireDead(t, "order-2", "order-4")

			for id, want := range map[string]int{"order-1": 1, "order-2": n, "order-3": 1, "order-4": n, "order-5": 1} {
				require.Equal(t, "deliveries of "+id, s.deliveries.of(id), want)
			}

			s.requeue(t, letters[1])
			require.Equal(t, "error", s.awaitDead(t, "order-4").LastError, "the database of customers is away")

			s.requeue(t, s.awaitDead(t, "order-4"))
			require.Eventually(t, "the order is handled", func() bool { return s.Effects(t)["order-4"] == 1 })

			// A redelivery of the dead one, as by somebody who moves its queue, does not start it again.
			send(t, topic, "order-2", "order-6")
			require.Eventually(t, "what follows is handled", func() bool { return s.Effects(t)["order-6"] == 1 })
			require.Equal(t, "runs of order-2", s.runs.of("order-2"), n)
			s.RequireOnce(t, "order-1", "order-3", "order-4", "order-5", "order-6")
		})
	}
}

func send(t *testing.T, topic broker.Topic, ids ...string) {
	t.Helper()

	for _, id := range ids {
		topic.Send(t, newOrder(id))
	}
}
