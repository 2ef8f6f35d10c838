package foreign_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmjetstream "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/brokers/nats"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// duplicateWindow is the time for which the server itself drops messages with a known Nats-Msg-Id; the least it
// allows.
const duplicateWindow = 100 * time.Millisecond

// openNATS makes a stream, to be read with Watermill's nats package.
func openNATS(t *testing.T) *topic {
	t.Helper()

	on, url := natsTopic(t)
	on.publisher = func(log watermill.LoggerAdapter) (message.Publisher, error) {
		return wmnats.NewPublisher(wmnats.PublisherConfig{URL: url}, log)
	}
	on.subscriber = func(group string, log watermill.LoggerAdapter) (message.Subscriber, error) {
		return wmnats.NewSubscriber(wmnats.SubscriberConfig{
			URL:              url,
			Unmarshaler:      nats.Unmarshaler{},
			QueueGroupPrefix: group,
			NakDelay:         wmnats.NewStaticDelay(20 * time.Millisecond),
			JetStream: wmnats.JetStreamConfig{
				DurablePrefix:    group,
				SubscribeOptions: []natsgo.SubOpt{natsgo.AckExplicit(), natsgo.ManualAck(), natsgo.DeliverAll()},
			},
		}, log)
	}

	return on
}

// openJetStream makes a stream, to be read with Watermill's jetstream package.
func openJetStream(t *testing.T) *topic {
	t.Helper()

	on, url := natsTopic(t)
	on.publisher = func(log watermill.LoggerAdapter) (message.Publisher, error) {
		return wmjetstream.NewPublisher(wmjetstream.PublisherConfig{URL: url, Logger: log})
	}
	on.subscriber = func(_ string, log watermill.LoggerAdapter) (message.Subscriber, error) {
		return wmjetstream.NewSubscriber(wmjetstream.SubscriberConfig{
			URL:         url,
			Logger:      log,
			Unmarshaler: nats.JetStreamUnmarshaler{},
			NakDelay:    wmjetstream.NewStaticDelay(20 * time.Millisecond),
		})
	}

	return on
}

func natsTopic(t *testing.T) (on *topic, url string) {
	t.Helper()

	url, err := servers.FromEnv("nats")
	if err != nil {
		t.Fatal(err)
	}

	name := newName()

	withJetStream(t, func(js natsgo.JetStreamContext) {
		stream := &natsgo.StreamConfig{Name: name, Subjects: []string{name}, Duplicates: duplicateWindow}
		if _, err := js.AddStream(stream); err != nil {
			t.Fatal(err)
		}
	})

	return &topic{
		name:    name,
		eventID: nats.EventID,
		send: func(t *testing.T, messages ...foreign) {
			t.Helper()

			for _, m := range messages {
				header := make(natsgo.Header)
				for key, value := range m.headers {
					header.Set(key, value)
				}

				if m.id != "" {
					header.Set(natsgo.MsgIdHdr, m.id)
				}

				publishNATS(t, &natsgo.Msg{Subject: name, Header: header, Data: []byte(m.body)})
			}
		},
		spellings: []string{"ce-", "Ce-"},
		odd:       message.Metadata{"odd!#$key": "\x00\xff:, ü", "empty": ""}, // keys are tokens as in HTTP
	}, url
}

func withJetStream(t *testing.T, do func(js natsgo.JetStreamContext)) {
	t.Helper()

	url, err := servers.FromEnv("nats")
	if err != nil {
		t.Fatal(err)
	}

	conn, err := natsgo.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}

	do(js)
}

// publishNATS sends a message and, where the server drops it as a duplicate, again until the window is over.
func publishNATS(t *testing.T, msg *natsgo.Msg) {
	t.Helper()

	withJetStream(t, func(js natsgo.JetStreamContext) {
		await(t, "the server to take a message", func() bool {
			ack, err := js.PublishMsg(msg)
			if err != nil {
				t.Fatal(err)
			}

			return !ack.Duplicate
		})
	})
}
