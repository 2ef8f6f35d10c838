package foreign_test

import (
	"regexp"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/brokers/kafka"
	"github.com/watermill-inbox/inbox/brokers/nats"
	"github.com/watermill-inbox/inbox/tests/servers"
)

// onEveryLog is onEveryBroker for those that let a second group read everything from the start.
func onEveryLog(t *testing.T, scenario func(t *testing.T, on *topic)) {
	t.Helper()

	for _, b := range brokers {
		if b.name == "rabbitmq" {
			continue
		}

		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, b.open(t))
		})
	}
}

func TestCoordinates_are_the_same_for_whoever_reads_the_topic_again(t *testing.T) {
	t.Parallel()
	onEveryLog(t, func(t *testing.T, on *topic) {
		s := newService(t, on.eventID)

		on.send(t, foreign{body: "a"}, foreign{body: "b"}, foreign{body: "c"}, foreign{body: "d"})

		stop := s.start(t, on, "first"+on.name)
		s.await(t, 4, 0)
		stop()

		// As after a reset of the offset: everything comes again, from the broker.
		s.start(t, on, "second"+on.name)
		s.await(t, 4, 4)
		s.db.RequireOnce(t, "a", "b", "c", "d")

		form := regexp.MustCompile("^" + on.name + `(/[0-2]/\d+|/[1-4])$`)

		for range 4 {
			if got := receive(t, "an event", s.seen); !form.MatchString(got.event.ID) {
				t.Errorf("event id %q", got.event.ID)
			}
		}
	})
}

// Whoever copies messages from one topic to another, headers and all, copies the coordinates of the first as well.
func TestCoordinates_that_a_producer_sends_are_not_believed(t *testing.T) {
	t.Parallel()
	onEveryLog(t, func(t *testing.T, on *topic) {
		s := newService(t, on.eventID)
		stale := map[string]string{kafka.MetadataCoordinates: "orders/0/1", nats.MetadataCoordinates: "ORDERS/1"}

		on.send(t, foreign{body: "a", headers: stale}, foreign{body: "b", headers: stale})
		s.start(t, on, "billing"+on.name)
		s.await(t, 2, 0)
		s.db.RequireOnce(t, "a", "b")
	})
}

// With Coordinates alone, a record of Watermill's publisher is found by the context of Watermill's subscriber.
func TestCoordinates_of_Kafka_are_there_for_messages_of_Watermill(t *testing.T) {
	t.Parallel()

	on := openKafka(t)
	s := newService(t, kafka.Coordinates)

	pub, err := on.publisher(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, pub)

	same := watermill.NewUUID()
	for _, body := range []string{"a", "b"} {
		if err := pub.Publish(on.name, message.NewMessage(same, message.Payload(body))); err != nil {
			t.Fatal(err)
		}
	}

	s.start(t, on, "billing"+on.name, deliverTwice())
	s.await(t, 2, 2)
	s.db.RequireOnce(t, "a", "b")
}

func TestForeign_record_of_Kafka_keeps_binary_headers_and_may_have_no_value(t *testing.T) {
	t.Parallel()

	on := openKafka(t)
	s := newService(t, on.eventID)

	addr, err := servers.FromEnv("kafka")
	if err != nil {
		t.Fatal(err)
	}

	headers := []sarama.RecordHeader{
		{Key: []byte("\x00\xff"), Value: []byte{0, 0xff}},
		{Key: []byte("twice"), Value: []byte("1")},
		{Key: []byte("twice"), Value: []byte("2")},
		{Key: []byte("nil")},
	}
	produceKafka(t, addr, on.name, &sarama.ProducerMessage{Key: sarama.StringEncoder("deleted"), Headers: headers})
	s.start(t, on, "billing"+on.name)

	got := receive(t, "a tombstone", s.seen)
	want := message.NewMessage("", nil)
	want.Metadata = message.Metadata{
		"\x00\xff": "\x00\xff", "twice": "2", "nil": "", kafka.MetadataCoordinates: got.event.ID,
	}

	if !got.msg.Equals(want) {
		t.Errorf("got %q %q %q", got.msg.UUID, got.msg.Metadata, got.msg.Payload)
	}

	s.await(t, 1, 0)
}

// Watermill's own unmarshaler refuses these for ever in its nats package, and panics in its jetstream package.
func TestForeign_message_of_NATS_may_repeat_a_header(t *testing.T) {
	t.Parallel()

	for name, open := range map[string]func(*testing.T) *topic{"nats": openNATS, "jetstream": openJetStream} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			on := open(t)
			s := newService(t, nil)

			publishNATS(t, &natsgo.Msg{Subject: on.name, Data: []byte("a"), Header: natsgo.Header{
				natsgo.MsgIdHdr:          {"m-1"},
				natsgo.ExpectedStreamHdr: {on.name},
				"Tag":                    {"paid", "express"},
				"Empty":                  {""},
			}})
			s.start(t, on, "billing", deliverTwice())

			got := receive(t, "a message", s.seen)
			want := message.NewMessage("m-1", message.Payload("a"))
			want.Metadata = message.Metadata{
				"Tag": "paid, express", "Empty": "", nats.MetadataCoordinates: on.name + "/1",
			}

			if !got.msg.Equals(want) || got.event.ID != "m-1" {
				t.Errorf("got %+v %q %q %q", got.event, got.msg.UUID, got.msg.Metadata, got.msg.Payload)
			}

			s.await(t, 1, 1)
			s.db.RequireOnce(t, "a")
		})
	}
}
