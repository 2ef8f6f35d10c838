package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Subscriber puts the inbox between a broker and a router, in the mode store-then-process: messages are stored and the
// broker gets its ack at once; the router gets the stored messages, with leases, retries and dead letters. It takes the place of
// sub in Router.AddHandler, and neither the handler nor the router changes. It is for handlers that take long or call
// external services, and for brokers with short ack deadlines.
//
// Messages in flight together are stored in one transaction. A message that was stored before is acked and not handed out
// again. One without an event id is nacked and logged. When the database fails, messages are nacked.
//
// A stored message is handed out until it is acked: again after a nack, with growing pauses ([WithBackoff]), and again when the
// lease of a process that died has ended ([WithLease]). After [WithMaxAttempts] it is a dead letter, see [Inbox.Dead]. A handler's
// effects happen at least once; what it writes in [InTx], or in the transaction that [Inbox.Middleware] provides, happens
// exactly once. A handler that returns messages needs the middleware, which keeps them until they are published.
//
// The consumer names who handles the messages, as the handler's name does in the middleware: it is part of an event's key, and the
// middleware uses it for messages from here whatever [WithConsumer] says. A service moves between the modes under the same
// name. It must be printable and of 255 bytes at most. Each handler needs a Subscriber of its own: handlers that share one share
// its events, and each event goes to one of them only. All subscribers of one consumer in a process need the same settings,
// until they are closed and their handlers have ended.
//
// Each Subscribe works on the messages of its topic that any process stored. Close, and the end of the context of Subscribe, stop
// the intake, give back what no handler has taken yet, and let running handlers finish for 30 s; their contexts are
// cancelled after 10 s. Close also closes sub.
//
// The inbox's tables must be there, or Subscribe returns [ErrNotMigrated].
func (ib *Inbox) Subscriber(consumer string, sub message.Subscriber, opts ...SubscriberOption) (message.Subscriber, error) {
	if sub == nil {
		return nil, fmt.Errorf("inbox: subscriber of consumer %q is nil", printable(consumer))
	}

	return ib.newSubscriber(consumer, sub, opts)
}

// Backlog is a [Inbox.Subscriber] without a broker: it hands out what is stored for a consumer, and takes nothing in. It is for
// services in same-transaction mode, which get requeued dead letters through it, and what is left over when they come back
// from store-then-process. Subscribe to the topic that the messages came from, in a handler of its own with the same
// function:
//
//	backlog, err := ib.Backlog("billing")
//	...
//	router.AddConsumerHandler("billing-backlog", "orders", backlog, charge)
func (ib *Inbox) Backlog(consumer string, opts ...SubscriberOption) (message.Subscriber, error) {
	return ib.newSubscriber(consumer, nil, opts)
}

func (ib *Inbox) newSubscriber(consumer string, broker message.Subscriber, opts []SubscriberOption) (message.Subscriber, error) {
	switch {
	case consumer == "":
		return nil, fmt.Errorf("inbox: %w: the consumer of a subscriber is empty", ErrNoConsumer)
	case printable(consumer) != consumer:
		return nil, fmt.Errorf("inbox: consumer %q of a subscriber must be printable and of %d bytes at most",
			printable(consumer), maxPrintable)
	}

	set, err := ib.newSubscriberConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("inbox: consumer %q: %w", consumer, err)
	}

	s := &subscriber{inbox: ib, consumer: consumer, broker: broker, set: set, closing: make(chan struct{})}
	if err := ib.running.add(s); err != nil {
		return nil, fmt.Errorf("inbox: %w", err)
	}

	return s, nil
}

// subscriber is a [message.Subscriber] and a [message.SubscribeInitializer].
type subscriber struct {
	inbox    *Inbox
	consumer string
	broker   message.Subscriber // nil for a backlog
	set      subscriberConfig

	mu            sync.Mutex
	closed        bool
	closing       chan struct{}
	subscriptions sync.WaitGroup
}

var (
	errClosed      = errors.New("inbox: subscriber is closed")
	errBrokerEnded = errors.New("the broker's subscriber closed its messages")
)

// SubscribeInitialize passes on to the broker's subscriber, if it has something to initialize.
func (s *subscriber) SubscribeInitialize(topic string) error {
	if initializer, ok := s.broker.(message.SubscribeInitializer); ok {
		return initializer.SubscribeInitialize(topic)
	}

	return nil
}

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return nil, errClosed
	}

	if err := s.inbox.repo.ready(ctx); err != nil {
		return nil, fmt.Errorf("inbox: subscribing consumer %q to %q: %w", s.consumer, printable(topic), err)
	}

	sub, err := newSubscription(ctx, s, topic)
	if err != nil {
		return nil, fmt.Errorf("inbox: subscribing consumer %q to %q: %w", s.consumer, printable(topic), err)
	}

	s.inbox.warnOfSharedQueue(sub)
	s.inbox.running.start(sub)
	s.subscriptions.Go(sub.run)

	return sub.out, nil
}

func (s *subscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closed {
		return nil
	}

	s.closed = true
	close(s.closing)

	var err error
	if s.broker != nil {
		err = s.broker.Close()
	}

	s.subscriptions.Wait()
	s.inbox.running.remove(s)

	return err
}

// registry knows the subscribers of an inbox that are not closed.
type registry struct {
	mu            sync.Mutex
	subscribers   map[*subscriber]struct{}
	subscriptions map[*subscription]struct{}
}

func (r *registry) add(s *subscriber) error {
	r.mu.Lock()
	defer r.mu.Unlock()

	for other := range r.subscribers {
		if other.consumer == s.consumer && !other.set.same(s.set) {
			return fmt.Errorf("consumer %q has a subscriber with other settings: all of one consumer's need the same options", s.consumer)
		}
	}

	if r.subscribers == nil {
		r.subscribers = make(map[*subscriber]struct{})
	}

	r.subscribers[s] = struct{}{}

	return nil
}

func (r *registry) remove(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.subscribers, s)
}

func (r *registry) start(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.subscriptions == nil {
		r.subscriptions = make(map[*subscription]struct{})
	}

	r.subscriptions[s] = struct{}{}
}

// shares reports whether a subscription that takes something in works on the same messages as s.
func (r *registry) shares(s *subscription) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	for other := range r.subscriptions {
		if other != s && other.queue == s.queue && other.broker != nil && !other.isEnding() {
			return true
		}
	}

	return false
}

func (r *registry) stop(s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.subscriptions, s)
}

// wake has every subscription look for messages that have become due.
func (r *registry) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()

	for s := range r.subscriptions {
		s.wakeUp()
	}
}
