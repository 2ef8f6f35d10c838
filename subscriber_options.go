package inbox

import (
	"fmt"
	"reflect"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// SubscriberOption configures [Inbox.Subscriber]. A value that makes no sense makes Subscriber return an error that names
// the option. The last of two equal options wins.
type SubscriberOption interface {
	applySubscriber(s *subscriberConfig) error
}

type subscriberOptionFunc func(s *subscriberConfig) error

func (f subscriberOptionFunc) applySubscriber(s *subscriberConfig) error { return f(s) }

type subscriberConfig struct {
	concurrency    int
	ingest         int
	lease          time.Duration
	initialBackoff time.Duration
	maxBackoff     time.Duration
	maxAttempts    int
	orderingKey    func(*message.Message) string
}

const defaultMaxAttempts = 20

func (c *config) newSubscriberConfig(opts []SubscriberOption) (subscriberConfig, error) {
	s := subscriberConfig{
		concurrency:    16,
		ingest:         1,
		lease:          30 * time.Second,
		initialBackoff: time.Second,
		maxBackoff:     10 * time.Minute,
		maxAttempts:    defaultMaxAttempts,
	}
	if c.maxAttempts > 0 {
		s.maxAttempts = c.maxAttempts
	}

	for i, opt := range opts {
		if opt == nil {
			return s, fmt.Errorf("subscriber option %d of %d is nil", i+1, len(opts))
		}

		if err := opt.applySubscriber(&s); err != nil {
			return s, err
		}
	}

	return s, nil
}

// same reports whether two subscribers of one consumer agree. Functions are compared by their code.
func (s subscriberConfig) same(other subscriberConfig) bool {
	a, b := reflect.ValueOf(s.orderingKey), reflect.ValueOf(other.orderingKey)
	if a.Pointer() != b.Pointer() {
		return false
	}

	s.orderingKey, other.orderingKey = nil, nil

	return reflect.DeepEqual(s, other)
}

// WithConcurrency sets how many leased messages are handed out at a time, for each Subscribe in each process. At least 1,
// at most 10,000, default 16. Handlers that write to the database need as many connections in its pool.
func WithConcurrency(n int) SubscriberOption {
	return subscriberOptionFunc(func(s *subscriberConfig) error {
		const most = 10_000
		if n < 1 || n > most {
			return fmt.Errorf("WithConcurrency(%d) must be between 1 and %d", n, most)
		}

		s.concurrency = n

		return nil
	})
}

// WithIngest sets how many concurrent subscriptions to the broker are made for one Subscribe. At least 1, at most 1,000,
// default 1. It is for brokers of which each subscription has one message in flight (RabbitMQ, NATS JetStream,
// watermill-sql), so that one transaction can store several. Subscriptions must share the messages, as consumers of one queue
// or group do; the order between them is lost, which [WithOrderingKey] cannot mend.
func WithIngest(n int) SubscriberOption {
	return subscriberOptionFunc(func(s *subscriberConfig) error {
		const most = 1_000
		if n < 1 || n > most {
			return fmt.Errorf("WithIngest(%d) must be between 1 and %d", n, most)
		}

		s.ingest = n

		return nil
	})
}

// minLease leaves time to renew a lease on a busy machine.
const minLease = 100 * time.Millisecond

// WithLease sets how long a message that is handed out belongs to its worker without a sign of life. It is renewed each
// third of that while the handler runs, so it bounds how long the messages of a crashed process wait, not how long a handler
// may take. At least 100 ms (a renewal needs time), at most 24 h, rounded up to milliseconds, default 30 s.
func WithLease(d time.Duration) SubscriberOption {
	return subscriberOptionFunc(func(s *subscriberConfig) error {
		const longest = 24 * time.Hour
		if d < minLease || d > longest {
			return fmt.Errorf("WithLease(%s) must be between %s, to leave time for renewing it, and %s", d, minLease, longest)
		}

		s.lease = roundUp(d)

		return nil
	})
}

// WithBackoff sets the pauses before a nacked message is handed out again: about initial after the first attempt, doubled
// with each further one, at most max, and each between half and all of that at random. Positive, rounded up to
// milliseconds, max not below initial and at most 30 days. Default 1 s and 10 min, which with the default of
// [WithMaxAttempts] gives up after about two hours.
func WithBackoff(initial, max time.Duration) SubscriberOption {
	return subscriberOptionFunc(func(s *subscriberConfig) error {
		const longest = 30 * 24 * time.Hour
		if initial <= 0 || max < initial || max > longest {
			return fmt.Errorf("WithBackoff(%s, %s): want 0 < initial <= max <= %s", initial, max, longest)
		}

		s.initialBackoff, s.maxBackoff = roundUp(initial), roundUp(max)

		return nil
	})
}

// WithOrderingKey has messages with the same key handed out one at a time, in the order in which they were stored. A message
// that is to be retried holds its key; a dead one does not, and a requeued one runs next. The empty key is none. What a broker
// delivers concurrently, to several processes, or again, may be stored in another order than it was published in. The function is
// called when a message is stored.
func WithOrderingKey(fn func(*message.Message) string) SubscriberOption {
	return subscriberOptionFunc(func(s *subscriberConfig) error {
		if fn == nil {
			return fmt.Errorf("WithOrderingKey: function is nil")
		}

		s.orderingKey = fn

		return nil
	})
}

// roundUp to milliseconds, which is what statements count in.
func roundUp(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
