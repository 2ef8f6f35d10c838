package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Option configures an [Inbox]. A value that makes no sense (nil, empty, not positive, in conflict with another
// option) makes [New] and [Schema] return an error that names the option. The last of two equal options wins.
type Option interface {
	apply(c *config) error
}

type optionFunc func(c *config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	engine     engine
	tables     tables
	eventID    []func(*message.Message) string
	source     func(*message.Message) string
	eventType  func(*message.Message) string
	consumer   func(*message.Message) string
	eventTime  func(*message.Message) (time.Time, bool)
	txOptions  *sql.TxOptions
	txTimeout  time.Duration
	lockWait   time.Duration
	txRetries  int
	outbox     func(tx *sql.Tx) (message.Publisher, error)
	unprepared bool

	maxAttempts int // of same-transaction mode, 0 without a limit
	crashGuard  bool

	hooks  Hooks
	logger watermill.LoggerAdapter
}

func newConfig(d Dialect, opts []Option) (*config, error) {
	engine, err := d.engine()
	if err != nil {
		return nil, err
	}

	c := &config{
		engine:    engine,
		eventID:   []func(*message.Message) string{defaultEventID},
		source:    defaultSource,
		eventType: defaultEventType,
		consumer:  defaultConsumer,
		txRetries: 10,
		logger:    watermill.NopLogger{},
	}

	opts = append([]Option{WithTable("inbox")}, opts...)
	for i, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("option %d of %d is nil", i, len(opts)-1)
		}

		if err := opt.apply(c); err != nil {
			return nil, err
		}
	}

	if c.lockWait > 0 && c.txTimeout > 0 && c.lockWait >= c.txTimeout {
		return nil, fmt.Errorf("WithLockTimeout(%s) must be shorter than WithTxTimeout(%s)", c.lockWait, c.txTimeout)
	}

	if c.txOptions != nil && !engine.supports(c.txOptions.Isolation) {
		return nil, fmt.Errorf("WithTxOptions: %s has no isolation level %q", d, c.txOptions.Isolation)
	}

	if c.crashGuard && c.maxAttempts == 0 {
		return nil, fmt.Errorf("WithCrashGuard needs WithMaxAttempts, to know when to give up")
	}

	c.tables = c.tables.in(engine)

	return c, nil
}

// WithTable sets the name of the ledger table, "name" or "schema.name". Default "inbox". Letters, digits and
// underscores are allowed, starting with a letter or an underscore, 50 bytes at most for each part. Names are quoted,
// so upper case is kept. Without a schema, PostgreSQL's is "public" whatever the search_path says, and SQLite's is
// "main". The side tables' names are made of this one by a suffix, and a name that ends in such a suffix is refused,
// so that two inboxes in one schema never share a table.
func WithTable(name string) Option {
	return optionFunc(func(c *config) (err error) {
		c.tables, err = parseTable(name)

		return err
	})
}

// WithEventID replaces the functions that find an event's id: the first that returns a non-empty string decides.
// The default takes, in this order, metadata "event_id", the CloudEvents id in the spelling of any protocol binding
// ("ce_id", "ce-id", "Ce-Id", "cloudEvents_id", "cloudEvents:id"), and the message's UUID. When all are empty the
// middleware returns [ErrNoEventID].
//
// The id must be the same on every redelivery *and* on every publish of the same event, and different for every other
// event of that source. A natural business id, such as an order id, is not an event id: an order has several events.
func WithEventID(fns ...func(*message.Message) string) Option {
	return optionFunc(func(c *config) error {
		if len(fns) == 0 {
			return fmt.Errorf("WithEventID needs at least one function")
		}

		for i, fn := range fns {
			if fn == nil {
				return fmt.Errorf("WithEventID: function %d is nil", i+1)
			}
		}

		c.eventID = append([]func(*message.Message) string(nil), fns...)

		return nil
	})
}

// WithSource replaces the function that tells who made an event. The default takes metadata "event_source", the
// CloudEvents source in the spelling of any binding, and then the topic that the router subscribed to. An empty source
// is allowed. The source is part of the key: where one event can arrive under several topics, as when a service moves
// from one broker to another, set this or have producers send "event_source", or the moved event is another event.
func WithSource(fn func(*message.Message) string) Option {
	return optionFunc(func(c *config) error {
		if fn == nil {
			return fmt.Errorf("WithSource: function is nil")
		}

		c.source = fn

		return nil
	})
}

// WithEventType replaces the function that names an event's type, which is stored for people to read. The default
// takes metadata "event_type", the CloudEvents type in the spelling of any binding, and then Watermill CQRS's "name".
func WithEventType(fn func(*message.Message) string) Option {
	return optionFunc(func(c *config) error {
		if fn == nil {
			return fmt.Errorf("WithEventType: function is nil")
		}

		c.eventType = fn

		return nil
	})
}

// WithConsumer replaces the function that names the consumer. The default is the router's handler name. It is part of
// the key, so that two handlers on one topic both see an event; renaming a consumer makes every event new to it. When
// it returns "" the middleware returns [ErrNoConsumer].
func WithConsumer(fn func(*message.Message) string) Option {
	return optionFunc(func(c *config) error {
		if fn == nil {
			return fmt.Errorf("WithConsumer: function is nil")
		}

		c.consumer = fn

		return nil
	})
}

// WithEventTime tells the time of events whose id carries none; UUIDv7 and ULID ids keep their own. It makes their keys
// ordered by time, which keeps the index small and partitions apart. The time must come with the event and be identical on
// every redelivery and republish: the producer's timestamp, never the broker's and never the clock. It is part of the
// key, to the millisecond: setting, changing or removing this option on live data makes known events new ones.
func WithEventTime(fn func(*message.Message) (time.Time, bool)) Option {
	return optionFunc(func(c *config) error {
		if fn == nil {
			return fmt.Errorf("WithEventTime: function is nil")
		}

		c.eventTime = fn

		return nil
	})
}

// WithTxOptions sets the isolation level of the transactions. Default: the database's own (READ COMMITTED on
// PostgreSQL). At REPEATABLE READ and above PostgreSQL raises a serialization failure where it otherwise waits for a
// concurrent duplicate; the inbox then runs the attempt again. ReadOnly is refused, since the inbox writes, and so is a
// level that the database does not have. On SQLite every transaction is serializable.
func WithTxOptions(o *sql.TxOptions) Option {
	return optionFunc(func(c *config) error {
		if o == nil {
			return fmt.Errorf("WithTxOptions: options are nil")
		}

		if o.ReadOnly {
			return fmt.Errorf("WithTxOptions: ReadOnly is true, but an inbox writes")
		}

		copied := *o
		c.txOptions = &copied

		return nil
	})
}

// WithTxTimeout bounds a transaction, from begin to commit; the handler's context gets the same deadline. After it,
// the transaction is rolled back and the message nacked. Default: no bound, so a handler that never returns holds its
// transaction. The message's own cancellation, as at [message.Router.Close], never ends the transaction.
func WithTxTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("WithTxTimeout(%s) must be positive", d)
		}

		c.txTimeout = d

		return nil
	})
}

// maxLockTimeout is PostgreSQL's: lock_timeout is an int32 of milliseconds.
const maxLockTimeout = (1<<31 - 1) * time.Millisecond

// WithLockTimeout bounds how long a claim waits for another transaction that works on the same event (on SQLite: on
// anything); after it the middleware returns [ErrInFlight]. It does not cover the handler's own statements. Rounded up
// to milliseconds. Default: it waits as long as the other transaction takes. Must be shorter than [WithTxTimeout].
func WithLockTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) error {
		if d <= 0 || d > maxLockTimeout {
			return fmt.Errorf("WithLockTimeout(%s) must be positive and at most %s", d, maxLockTimeout)
		}

		c.lockWait = (d + time.Millisecond - 1).Truncate(time.Millisecond)

		return nil
	})
}

// WithMaxTxRetries sets how often an attempt that ended in a serialization failure, a deadlock or SQLite's "busy" is
// run again in a fresh transaction, handler included, before the error is returned. At least 1, default 10, with a
// random pause of at most 100 ms between attempts and no transaction open meanwhile.
func WithMaxTxRetries(n int) Option {
	return optionFunc(func(c *config) error {
		if n <= 0 {
			return fmt.Errorf("WithMaxTxRetries(%d) must be positive", n)
		}

		c.txRetries = n

		return nil
	})
}

// WithOutbox publishes the messages that a handler returns inside its transaction, to the handler's own publish topic,
// and returns none to the router. The function is called once for each transaction that has outputs, and must return a
// publisher that writes through tx: a watermill-sql publisher, perhaps inside Watermill's forwarder. It is not closed.
// Default: outputs are stored with the event, published by the router, and published again on redelivery.
func WithOutbox(fn func(tx *sql.Tx) (message.Publisher, error)) Option {
	return optionFunc(func(c *config) error {
		if fn == nil {
			return fmt.Errorf("WithOutbox: function is nil")
		}

		c.outbox = fn

		return nil
	})
}

// WithoutPreparedStatements makes the inbox send its statements unprepared, for transaction-pooling proxies such as
// PgBouncer before 1.21. It costs lib/pq one round trip per statement, unless binary_parameters=yes is in its DSN.
func WithoutPreparedStatements() Option {
	return optionFunc(func(c *config) error {
		c.unprepared = true

		return nil
	})
}

// WithHooks sets the functions that are told what happened, see [Hooks].
func WithHooks(h Hooks) Option {
	return optionFunc(func(c *config) error {
		c.hooks = h

		return nil
	})
}

// WithLogger sets the logger. Default: none. Events are logged by id, source and consumer; payloads never are.
func WithLogger(l watermill.LoggerAdapter) Option {
	return optionFunc(func(c *config) error {
		if l == nil {
			return fmt.Errorf("WithLogger: logger is nil")
		}

		c.logger = l

		return nil
	})
}

// detach returns the context of a transaction: the message's values without its cancellation, bounded by
// WithTxTimeout.
func (c *config) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = context.WithoutCancel(ctx)
	if c.txTimeout > 0 {
		cause := fmt.Errorf("WithTxTimeout(%s) ended the transaction: %w", c.txTimeout, context.DeadlineExceeded)

		return context.WithTimeoutCause(ctx, c.txTimeout, cause)
	}

	return ctx, func() {}
}
