package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
)

// relayBatch is how many events the relay marks as published at once.
const relayBatch = 10

// relay publishes the outbox of the producer until ctx ends.
func relay(ctx context.Context, s *setting) (err error) {
	outbox, err := s.outboxSubscriber()
	if err != nil {
		return err
	}

	b, err := openBroker(ctx, s.config, s.logger)
	if err != nil {
		return err
	}

	f, err := forwarder.NewForwarder(outbox, reportingPublisher{b.publisher, s}, s.logger, forwarder.Config{
		ForwarderTopic: outboxTopic,
	})
	if err != nil {
		return err
	}

	err = runRouter(ctx, f, s)

	return errors.Join(err, b.Close())
}

// reportingPublisher tells the demonstration how many messages were published. What it returns from has not been marked
// yet.
type reportingPublisher struct {
	message.Publisher
	s *setting
}

func (p reportingPublisher) Publish(topic string, messages ...*message.Message) error {
	if err := p.Publisher.Publish(topic, messages...); err != nil {
		return err
	}

	for range messages {
		p.s.tell(published)
		p.s.holdHere()
	}

	return nil
}

// router is a message.Router or something around one.
type router interface {
	Run(ctx context.Context) error
	Running() chan struct{}
	Close() error
}

// runRouter lets handlers that are at work when ctx ends finish.
func runRouter(ctx context.Context, r router, s *setting) error {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.WithoutCancel(ctx)) }()

	select {
	case <-r.Running():
		s.tell(running)
	case err := <-ended:
		return err
	}

	<-ctx.Done()

	return errors.Join(r.Close(), <-ended)
}
