// Package pubsub_test runs Watermill's universal Pub/Sub suite on brokers with an inbox between them and the reader. All
// that the suite expects of a Pub/Sub still holds then, and exactly-once delivery holds in addition, although
// everything is published twice.
package pubsub_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// ledger is the inbox of one run of the suite.
type ledger struct {
	inbox  *inbox.Inbox
	insert string
}

func newLedger(t *testing.T) *ledger {
	t.Helper()

	db := testdb.Open(t, testdb.PQ)
	db.SetMaxIdleConns(16)

	l := &ledger{insert: "INSERT INTO " + db.EffectsTable(t) + " (event) VALUES ($1)"}
	l.inbox = db.New(t,
		inbox.WithConsumer(func(msg *message.Message) string { return subscriptionOf(msg).consumer }),
		inbox.WithSource(func(msg *message.Message) string { return subscriptionOf(msg).topic }),
	)

	t.Cleanup(func() {
		effects := db.Effects(t)
		if len(effects) == 0 {
			t.Error("nothing went through the inbox")
		}

		for event, n := range effects {
			if n != 1 {
				t.Errorf("%d effects of event %s", n, event)
			}
		}
	})

	return l
}

// subscription is what a router would tell about a message.
type subscription struct {
	consumer, topic string
}

type subscriptionKey struct{}

func subscriptionOf(msg *message.Message) subscription {
	s, _ := msg.Context().Value(subscriptionKey{}).(subscription)

	return s
}

// wrap puts the inbox between a Pub/Sub and its users. Subscriptions that share a consumer are one reader to the inbox.
func (l *ledger) wrap(
	t *testing.T, pub message.Publisher, sub message.Subscriber, consumer string,
) (message.Publisher, message.Subscriber) {
	t.Helper()

	return l.wrapWith(t, pub, sub, func() string { return consumer })
}

// wrapFanOut is for a Pub/Sub that hands every message to each subscription: each is a consumer of its own.
func (l *ledger) wrapFanOut(t *testing.T, pub message.Publisher, sub message.Subscriber) (message.Publisher, message.Subscriber) {
	t.Helper()

	return l.wrapWith(t, pub, sub, watermill.NewUUID)
}

func (l *ledger) wrapWith(
	t *testing.T, pub message.Publisher, sub message.Subscriber, consumer func() string,
) (message.Publisher, message.Subscriber) {
	t.Helper()

	s := &subscriber{Subscriber: sub, ledger: l, consumer: consumer, closing: make(chan struct{})}

	// The suite forgets to close some.
	t.Cleanup(func() {
		if err := errors.Join(pub.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})

	return twice{pub}, s
}

// twice publishes everything twice, as a producer does that did not see the first one's confirmation.
type twice struct {
	message.Publisher
}

func (p twice) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		again := msg.Copy()
		again.SetContext(msg.Context())

		if err := p.Publisher.Publish(topic, msg, again); err != nil {
			return err
		}
	}

	return nil
}

// subscriber handles a message, in the sense of the inbox, by giving a copy to the reader and waiting for its ack.
type subscriber struct {
	message.Subscriber
	*ledger

	consumer func() string
	running  sync.WaitGroup
	closing  chan struct{}
	once     sync.Once
}

func (s *subscriber) SubscribeInitialize(topic string) error {
	if initializer, ok := s.Subscriber.(message.SubscribeInitializer); ok {
		return initializer.SubscribeInitialize(topic)
	}

	return nil
}

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}

	out := make(chan *message.Message)
	handle := s.inbox.Middleware(s.handOver(out))
	origin := subscription{s.consumer(), topic}

	s.running.Go(func() {
		defer close(out)

		for msg := range in {
			msg.SetContext(context.WithValue(msg.Context(), subscriptionKey{}, origin))

			if _, err := handle(msg); err != nil {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}
	})

	return out, nil
}

var (
	errNacked  = errors.New("the reader nacked")
	errClosing = errors.New("the subscriber is closing")
)

func (s *subscriber) handOver(out chan<- *message.Message) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := inbox.TxFromContext(msg.Context())
		origin := subscriptionOf(msg)

		event := origin.consumer + "/" + origin.topic + "/" + msg.UUID
		if _, err := tx.Exec(s.insert, event); err != nil {
			return nil, err
		}

		handed := msg.Copy()
		handed.SetContext(msg.Context())

		select {
		case out <- handed:
		case <-s.closing:
			return nil, errClosing
		case <-msg.Context().Done():
			return nil, msg.Context().Err()
		}

		var err error

		select {
		case <-handed.Acked():
			return nil, nil
		case <-handed.Nacked():
			return nil, errNacked
		case <-s.closing:
			err = errClosing
		case <-msg.Context().Done():
			err = msg.Context().Err()
		}

		select {
		case <-handed.Acked(): // before it was closed
			return nil, nil
		default:
			return nil, err
		}
	}
}

func (s *subscriber) Close() (err error) {
	s.once.Do(func() {
		close(s.closing)
		err = s.Subscriber.Close()
		s.running.Wait()
	})

	return err
}
