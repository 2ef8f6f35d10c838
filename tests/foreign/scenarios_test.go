package foreign_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
)

// The messages of RabbitMQ carry a message-id; those of Kafka and NATS nothing at all.
//
// Report: watermill 184, 192, 265.
func TestForeign_messages_are_events_of_their_own_however_often_they_are_delivered(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, on *topic) {
		s := newService(t, on.eventID)

		messages := []foreign{{body: "a"}, {body: "b"}, {body: "c"}, {body: "d"}}

		if on.eventID == nil {
			for i := range messages {
				messages[i].id = "id of " + messages[i].body
			}
		}

		on.send(t, messages...)
		s.start(t, on, "billing", deliverTwice())
		s.await(t, 4, 4)
		s.db.RequireOnce(t, "a", "b", "c", "d")
	})
}

// Kafka has no place for ids of its own, so there the id is a header.
func TestForeign_message_that_is_published_again_is_one_event(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, on *topic) {
		s := newService(t, on.eventID)

		one := foreign{body: "a", id: "order-7-paid", headers: map[string]string{}}
		two := foreign{body: "b", id: "order-8-paid", headers: map[string]string{}}

		if strings.HasPrefix(on.spellings[0], "ce_") {
			one.headers["ce_id"], two.headers["ce_id"] = one.id, two.id
		}

		on.send(t, one, two, one, one)
		s.start(t, on, "billing")
		s.await(t, 2, 2)
		s.db.RequireOnce(t, "a", "b")

		for range 2 {
			got := receive(t, "an event", s.seen)
			if want := map[string]string{"a": one.id, "b": two.id}[string(got.msg.Payload)]; got.event.ID != want {
				t.Errorf("event id %q, want %q", got.event.ID, want)
			}
		}
	})
}

func TestForeign_CloudEvent_is_found_in_the_spelling_of_its_binding(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, on *topic) {
		s := newService(t, on.eventID)

		for i, prefix := range on.spellings {
			attribute := func(name string) string {
				if prefix == "Ce-" { // as HTTP headers are canonicalised
					name = strings.ToUpper(name[:1]) + name[1:]
				}

				return prefix + name
			}

			event := func(body, id, source string) foreign {
				return foreign{body: prefix + body, id: watermill.NewUUID(), headers: map[string]string{
					attribute("id"):     id,
					attribute("source"): source,
					attribute("type"):   "order.paid",
				}}
			}

			// The broker's own id differs each time: the CloudEvents id is the event's.
			on.send(t,
				event("a", "e-1"+prefix, "/shop"),
				event("a", "e-1"+prefix, "/shop"),
				event("b", "e-1"+prefix, "/branch"),
			)

			if i == 0 {
				s.start(t, on, "billing")
			}

			s.await(t, int64(i+1)*2, int64(i+1))

			for range 2 {
				got := receive(t, "an event", s.seen)
				want := inbox.Event{Consumer: "billing", Source: "/shop", ID: "e-1" + prefix, Type: "order.paid"}

				if string(got.msg.Payload) == prefix+"b" {
					want.Source = "/branch"
				}

				if got.event != want {
					t.Errorf("got %+v, want %+v", got.event, want)
				}
			}
		}
	})
}

// Report: watermill 184, 192, 265.
func TestForeign_message_without_id_is_an_error_that_holds_up_nothing(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, on *topic) {
		s := newService(t, nil) // no coordinates

		poison := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, s.log)
		defer mustClose(t, poison)

		refused, err := poison.Subscribe(t.Context(), "poison")
		if err != nil {
			t.Fatal(err)
		}

		withoutID := func(err error) bool { return errors.Is(err, inbox.ErrNoEventID) }

		aside, err := middleware.PoisonQueueWithFilter(poison, "poison", withoutID)
		if err != nil {
			t.Fatal(err)
		}

		on.send(t, foreign{body: "1"}, foreign{body: "2"}, foreign{body: "a", headers: map[string]string{"event_id": "a"}})
		stop := s.start(t, on, "billing", aside)

		for range 2 {
			msg := receive(t, "a refused message", refused)
			if msg.UUID != "" {
				t.Errorf("UUID %q was made up", msg.UUID)
			}

			msg.Ack()
		}

		s.await(t, 1, 0)
		s.db.RequireOnce(t, "a")
		stop()
	})
}

func TestForeign_unmarshalers_leave_messages_of_Watermill_unchanged(t *testing.T) {
	t.Parallel()
	onEveryBroker(t, func(t *testing.T, on *topic) {
		s := newService(t, on.eventID)

		pub, err := on.publisher(s.log)
		if err != nil {
			t.Fatal(err)
		}
		defer mustClose(t, pub)

		one := message.NewMessage(watermill.NewUUID(), message.Payload("\x00\xff payload"))
		for key, value := range on.odd {
			one.Metadata.Set(key, value)
		}

		two := message.NewMessage(watermill.NewULID(), message.Payload("b"))

		if err := pub.Publish(on.name, one, two, one); err != nil {
			t.Fatal(err)
		}

		s.effect = func(msg *message.Message) string { return msg.UUID }

		s.start(t, on, "billing")
		s.await(t, 2, 1)
		s.db.RequireOnce(t, one.UUID, two.UUID)

		for range 2 {
			got := receive(t, "a message", s.seen)
			want := map[string]*message.Message{one.UUID: one, two.UUID: two}[got.msg.UUID]

			if want == nil || !got.msg.Equals(want) || got.event.ID != want.UUID {
				t.Errorf("got %+v %q %q %q", got.event, got.msg.UUID, got.msg.Metadata, got.msg.Payload)
			}
		}
	})
}
