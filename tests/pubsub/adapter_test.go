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

// sameTransaction has the suite be a handler inside of the middleware.
var sameTransaction = mode{start: startSameTransaction, ordered: true}

func startSameTransaction(t *testing.T) between {
	t.Helper()

	db := database(t, testdb.PQ)
	l := &ledger{insert: "INSERT INTO " + db.EffectsTable(t) + " (event) VALUES ($1)"}
	l.inbox = db.New(t,
		inbox.WithConsumer(func(msg *message.Message) string { return subscriptionOf(msg).consumer }),
		inbox.WithSource(func(msg *message.Message) string { return subscriptionOf(msg).topic }),
	)

	t.Cleanup(func() { requireOnce(t, db.Effects(t)) })

	return func(_ *testing.T, sub message.Subscriber, consumer string) message.Subscriber {
		return &subscriber{Subscriber: sub, ledger: l, consumer: consumer, closing: make(chan struct{})}
	}
}

// ledger is the inbox of one run of the suite.
type ledger struct {
	inbox  *inbox.Inbox
	insert string
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

// subscriber handles a message, in the sense of the inbox, by giving a copy to the reader and waiting for its ack.
type subscriber struct {
	message.Subscriber
	*ledger

	consumer string
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
	origin := subscription{s.consumer, topic}

	if origin.consumer == "" {
		origin.consumer = watermill.NewUUID()
	}

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
