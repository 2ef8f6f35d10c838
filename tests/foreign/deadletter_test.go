package foreign_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

var errRejected = errors.New("rejected on purpose")

// requireDeath fails unless the x-death header tells of deaths for this reason in this queue.
func requireDeath(t *testing.T, msg *message.Message, queue, reason string) {
	t.Helper()

	var deaths []struct {
		Count         int64
		Queue, Reason string
		Time          time.Time
	}
	if err := json.Unmarshal([]byte(msg.Metadata.Get("x-death")), &deaths); err != nil {
		t.Fatalf("x-death %q: %v", msg.Metadata.Get("x-death"), err)
	}

	for _, d := range deaths {
		if d.Queue == queue && d.Reason == reason {
			if d.Count != 1 || time.Since(d.Time) > time.Hour {
				t.Errorf("got %+v", d)
			}

			return
		}
	}

	t.Fatalf("no death in %s: %+v", queue, deaths)
}

// openDying returns a queue whose rejected messages go to another queue.
func openDying(t *testing.T) (dying, dead *topic) {
	t.Helper()

	dead = openRabbitMQ(t)

	config := wmamqp.NewDurableQueueConfig(rabbitMQURL(t))
	config.Consume.NoRequeueOnNack = true
	config.Queue.Arguments = amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}

	return rabbitMQTopic(t, config), dead
}

// Report: watermill-amqp 23.
func TestForeign_dead_letter_of_RabbitMQ_is_the_same_event_and_is_handled(t *testing.T) {
	t.Parallel()

	dying, dead := openDying(t)

	s := newService(t, nil)
	s.fail = func(*message.Message) error { return errRejected }

	publishAMQP(t, dying.name, amqp091.Publishing{
		MessageId: "m-1",
		Type:      "order.paid",
		Headers:   amqp091.Table{"attempt": int32(3)},
		Body:      []byte("a"),
	})
	// A copy of it: the same event twice on the dead queue.
	dying.send(t, foreign{body: "a", id: "m-1"}, foreign{body: "b", id: "m-2"})

	s.start(t, dying, "billing")

	undertaker := newService(t, nil)
	undertaker.start(t, dead, "billing", deliverTwice())
	undertaker.await(t, 2, 3) // a, b; and again: a and b as redelivered, the copy of a
	undertaker.db.RequireOnce(t, "a", "b")

	for range 2 {
		got := receive(t, "a dead letter", undertaker.seen)
		if want := map[string]string{"a": "m-1", "b": "m-2"}[string(got.msg.Payload)]; got.event.ID != want {
			t.Errorf("event id %q, want %q", got.event.ID, want)
		}

		requireDeath(t, got.msg, dying.name, "rejected")

		if got.event.ID == "m-1" && got.msg.Metadata.Get("attempt") != "3" {
			t.Errorf("metadata %q", got.msg.Metadata)
		}
	}

	s.db.RequireOnce(t) // nothing: every attempt there was rolled back
}

// Report: watermill-amqp 23.
func TestForeign_dead_letter_of_a_message_of_Watermill_keeps_its_UUID(t *testing.T) {
	t.Parallel()

	dying, dead := openDying(t)

	s := newService(t, nil)
	s.fail = func(*message.Message) error { return errRejected }

	pub, err := dying.publisher(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, pub)

	own := message.NewMessage(watermill.NewUUID(), message.Payload("a"))
	own.Metadata.Set("tenant", "acme")

	if err := pub.Publish(dying.name, own); err != nil {
		t.Fatal(err)
	}

	s.start(t, dying, "billing")

	undertaker := newService(t, nil)
	undertaker.start(t, dead, "billing")

	got := receive(t, "a dead letter", undertaker.seen).msg
	if got.UUID != own.UUID || got.Metadata.Get("tenant") != "acme" {
		t.Errorf("got %q %q", got.UUID, got.Metadata)
	}

	requireDeath(t, got, dying.name, "rejected")
	undertaker.await(t, 1, 0)
}

// A handler may send on what it got, metadata and all: x-death is text by then.
func TestForeign_dead_letter_that_is_published_again_may_die_again(t *testing.T) {
	t.Parallel()

	dying, dead := openDying(t)

	s := newService(t, nil)
	s.fail = func(*message.Message) error { return errRejected }

	dying.send(t, foreign{body: "a", id: "m-1"})
	s.start(t, dying, "billing")

	undertaker := newService(t, nil)
	undertaker.start(t, dead, "billing")

	first := receive(t, "a dead letter", undertaker.seen).msg

	pub, err := dying.publisher(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, pub)

	if err := pub.Publish(dying.name, first); err != nil {
		t.Fatal(err)
	}

	undertaker.await(t, 1, 1) // it is still the same event
}

// Quorum queues count deliveries in an integer header.
//
// Report: watermill-amqp 23.
func TestForeign_message_that_a_quorum_queue_delivers_again_is_handled(t *testing.T) {
	t.Parallel()

	config := wmamqp.NewDurableQueueConfig(rabbitMQURL(t))
	config.Queue.Arguments = amqp091.Table{"x-queue-type": "quorum"}

	on := rabbitMQTopic(t, config)
	s := newService(t, nil)

	attempts := 0
	s.fail = func(*message.Message) error {
		if attempts++; attempts < 3 {
			return errRejected
		}

		return nil
	}

	on.send(t, foreign{body: "a", id: "m-1"})
	s.start(t, on, "billing")

	got := receive(t, "a message", s.seen).msg
	if n := got.Metadata.Get("x-delivery-count"); n != "2" || !wmamqp.IsMessageRedelivered(got) {
		t.Errorf("x-delivery-count %q, metadata %q", n, got.Metadata)
	}

	s.await(t, 1, 0)
	s.db.RequireOnce(t, "a")
}
