package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
)

// service is a router with a command handler and a group of event handlers.
type service struct {
	router     *message.Router
	commandBus *cqrs.CommandBus
	eventBus   *cqrs.EventBus
	ended      chan error

	events, runs, failures atomic.Int32
	tried                  sync.Map // orders whose reservation has failed already
	eventsHandled          sync.WaitGroup
}

var (
	marshaler = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
	logger    = watermill.NopLogger{}
)

// startService returns when the router is running.
func startService(ctx context.Context, db *sql.DB) (*service, error) {
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, err
	}

	ib, err := inbox.New(db, inbox.SQLite)
	if err != nil {
		return nil, err
	}

	if err := ib.Migrate(ctx); err != nil {
		return nil, err
	}

	s := &service{router: router, ended: make(chan error, 1)}

	router.AddMiddleware(s.countEvents, ib.Middleware)

	// A command is done when Send returns. Events are handled meanwhile: their handlers need the database, which has one
	// writer at a time, after the command's.
	commands := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	events := gochannel.NewGoChannel(gochannel.Config{}, logger)

	if err := errors.Join(s.addCommands(commands), s.addEvents(events)); err != nil {
		return nil, err
	}

	go func() { s.ended <- router.Run(context.WithoutCancel(ctx)) }()

	select {
	case <-router.Running():
		return s, nil
	case err := <-s.ended:
		return nil, err
	}
}

func (s *service) addCommands(pubsub *gochannel.GoChannel) (err error) {
	s.commandBus, err = cqrs.NewCommandBusWithConfig(pubsub, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) {
			return "commands", nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}

	processor, err := cqrs.NewCommandProcessorWithConfig(s.router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) {
			return "commands", nil
		},
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return pubsub, nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}

	return processor.AddHandlers(cqrs.NewCommandHandler("place-order", s.place))
}

func (s *service) addEvents(pubsub *gochannel.GoChannel) (err error) {
	s.eventBus, err = cqrs.NewEventBusWithConfig(twice{pubsub, s}, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		// The bus makes a new UUID each time it publishes. An id made of what happened stays the same.
		OnPublish: func(p cqrs.OnEventSendParams) error {
			p.Message.Metadata.Set("event_id", p.EventName+" "+p.Event.(orderPlaced).Order)

			return nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}

	processor, err := cqrs.NewEventGroupProcessorWithConfig(s.router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) {
			return "events", nil
		},
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return pubsub, nil
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}

	return processor.AddHandlersGroup("fulfilment", cqrs.NewGroupEventHandler(s.pay), cqrs.NewGroupEventHandler(s.reserve))
}

// send sends a command whose id is the same every time.
func (s *service) send(ctx context.Context, cmd placeOrder) error {
	return s.commandBus.SendWithModifiedMessage(ctx, cmd, func(msg *message.Message) error {
		msg.Metadata.Set("event_id", "place "+cmd.Order)

		return nil
	})
}

func (s *service) stop() error { return errors.Join(s.router.Close(), <-s.ended) }

// countEvents notices when an event that was published is handled, so that the program knows when to end.
func (s *service) countEvents(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		outputs, err := h(msg)

		if message.SubscribeTopicFromCtx(msg.Context()) == "events" {
			s.events.Add(1)

			if err == nil {
				s.eventsHandled.Done()
			}
		}

		return outputs, err
	}
}

// twice is a broker that delivers every event twice.
type twice struct {
	message.Publisher
	s *service
}

func (t twice) Publish(topic string, messages ...*message.Message) error {
	for range 2 {
		t.s.eventsHandled.Add(len(messages))

		if err := t.Publisher.Publish(topic, messages...); err != nil {
			t.s.eventsHandled.Add(-len(messages))

			return err
		}
	}

	return nil
}
