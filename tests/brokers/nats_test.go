package brokers

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
)

const (
	natsAckWait = 2 * time.Second
	// natsInFlight bounds what waits in a dead client's buffer for the ack wait to run out.
	natsInFlight = 10
)

// natsJetStream has a stream for each topic and a durable queue consumer for each group. The client reconnects by
// itself when it may do so without limit.
var natsJetStream = &broker{
	name:   "nats",
	server: "nats",
	publisher: func(addr string, log watermill.LoggerAdapter) (message.Publisher, error) {
		return nats.NewPublisher(nats.PublisherConfig{
			URL:         addr,
			NatsOptions: natsOptions(),
			JetStream: nats.JetStreamConfig{
				AutoProvision:  true,
				ConnectOptions: []natsgo.JSOpt{natsgo.MaxWait(time.Second)},
			},
		}, log)
	},
	subscriber: func(addr, group string, log watermill.LoggerAdapter) (message.Subscriber, error) {
		gate := newNATSGate()

		sub, err := nats.NewSubscriber(nats.SubscriberConfig{
			URL:              addr,
			Unmarshaler:      gate,
			QueueGroupPrefix: group,
			SubscribersCount: 2,
			CloseTimeout:     10 * time.Second,
			AckWaitTimeout:   natsAckWait,
			NatsOptions:      natsOptions(),
			NakDelay:         nats.NewStaticDelay(20 * time.Millisecond),
			JetStream: nats.JetStreamConfig{
				AutoProvision: true,
				DurablePrefix: group,
				SubscribeOptions: []natsgo.SubOpt{
					natsgo.AckExplicit(),
					natsgo.AckWait(natsAckWait),
					// Without it the client acks whatever the subscriber leaves unacked when it closes or when the
					// ack wait runs out, and the message is lost: watermill-nats does not set it.
					natsgo.ManualAck(),
				},
			},
		}, log)
		if err != nil {
			return nil, err
		}

		return &natsSubscriber{Subscriber: sub, gate: gate, addr: addr, group: group}, nil
	},
}

func natsOptions() []natsgo.Option {
	return []natsgo.Option{natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50 * time.Millisecond)}
}

// natsSubscriber makes the durable consumer beforehand: one that the client makes when it subscribes is deleted when
// that client unsubscribes, under the feet of the rest of the group, and forgets what was acked.
type natsSubscriber struct {
	*nats.Subscriber

	gate        *natsGate
	addr, group string
}

func (s *natsSubscriber) SubscribeInitialize(topic string) error {
	if err := s.Subscriber.SubscribeInitialize(topic); err != nil {
		return err
	}

	conn, err := natsgo.Connect(s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()

	js, err := conn.JetStream()
	if err != nil {
		return err
	}

	_, err = js.AddConsumer(topic, &natsgo.ConsumerConfig{
		Durable:        s.group,
		DeliverGroup:   s.group,
		DeliverSubject: natsgo.NewInbox(),
		FilterSubject:  topic,
		AckPolicy:      natsgo.AckExplicitPolicy,
		AckWait:        natsAckWait,
		MaxAckPending:  natsInFlight,
	})

	return err
}
