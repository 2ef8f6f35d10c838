package cqrs_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/running"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

type (
	orderPlaced    struct{ Order string }
	orderCancelled struct{ Order string }
	placeOrder     struct{ Order string }
)

var (
	marshaler   = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
	errBusiness = errors.New("out of stock")
)

// service is a router over a database, with a Pub/Sub in memory that sends a nacked message again at once.
type service struct {
	*message.Router
	db     *testdb.DB
	pubsub *gochannel.GoChannel
}

// newService has the inbox in front of all handlers.
func newService(t testing.TB) *service {
	t.Helper()

	db := testdb.Open(t, testdb.PQ)
	db.EffectsTable(t)

	return newServiceOn(t, db)
}

func newServiceOn(t testing.TB, db *testdb.DB) *service {
	t.Helper()

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: require.Patience}, watermill.NopLogger{})
	require.OK(t, err)
	router.AddMiddleware(db.New(t).Middleware)

	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})

	return &service{router, db, pubsub}
}

func (s *service) start(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { require.OK(t, s.pubsub.Close()) })
	running.Run(t, s.Router)
}

// deliver publishes a command or event under an id, and returns when all its handlers have acked.
func (s *service) deliver(t testing.TB, id string, v any) {
	t.Helper()

	msg, err := marshaler.Marshal(v)
	require.OK(t, err)

	msg.UUID = id
	running.Publish(t, s.pubsub, "shop", msg)
}

// note writes an effect through the transaction in a handler's context.
func (s *service) note(ctx context.Context, effect string) error {
	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return errors.New("the handler has no transaction")
	}

	_, err := tx.ExecContext(ctx, "INSERT INTO "+s.db.Table("effects")+" (event) VALUES ($1)", effect)

	return err
}

// requireRecorded fails unless the ledger has these rows: consumer, type, id.
func (s *service) requireRecorded(t testing.TB, want ...string) {
	t.Helper()

	rows, err := s.db.QueryContext(t.Context(),
		"SELECT consumer, event_type, event_id FROM "+s.db.Table("inbox")+" ORDER BY consumer, event_type, event_id")
	require.OK(t, err)

	defer rows.Close()

	var got []string

	for rows.Next() {
		var consumer, eventType, id string
		require.OK(t, rows.Scan(&consumer, &eventType, &id))
		got = append(got, fmt.Sprintf("%s %s %s", consumer, eventType, id))
	}

	require.OK(t, rows.Err())
	require.Equal(t, "recorded events", got, want)
}

func (s *service) addEventHandlers(t testing.TB, ackUnknown bool, handlers ...cqrs.EventHandler) {
	t.Helper()

	p, err := cqrs.NewEventProcessorWithConfig(s.Router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "shop", nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.pubsub, nil
		},
		AckOnUnknownEvent: ackUnknown,
		Marshaler:         marshaler,
	})
	require.OK(t, err)
	require.OK(t, p.AddHandlers(handlers...))
}

func (s *service) addGroup(t testing.TB, name string, ackUnknown bool, handlers ...cqrs.GroupEventHandler) {
	t.Helper()

	p, err := cqrs.NewEventGroupProcessorWithConfig(s.Router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) {
			return "shop", nil
		},
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.pubsub, nil
		},
		AckOnUnknownEvent: ackUnknown,
		Marshaler:         marshaler,
	})
	require.OK(t, err)
	require.OK(t, p.AddHandlersGroup(name, handlers...))
}

// addCommandHandler takes onHandle or nil.
func (s *service) addCommandHandler(
	t testing.TB, ackErrors bool, onHandle cqrs.CommandProcessorOnHandleFn, h cqrs.CommandHandler,
) {
	t.Helper()

	p, err := cqrs.NewCommandProcessorWithConfig(s.Router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return "shop", nil
		},
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.pubsub, nil
		},
		OnHandle:                 onHandle,
		AckCommandHandlingErrors: ackErrors,
		Marshaler:                marshaler,
	})
	require.OK(t, err)
	require.OK(t, p.AddHandlers(h))
}
