// Package nats gives an inbox an event id for NATS JetStream messages of producers that are not Watermill.
//
// Watermill knows an event by the header that its own publisher sets, strips Nats-Msg-Id, and refuses a message in
// which one header has several values: its nats package lets such a message come again after every ack wait, its
// jetstream package panics. [Unmarshaler] and [JetStreamUnmarshaler] take the place of those two packages' own:
//
//	sub, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
//		Unmarshaler: nats.Unmarshaler{},
//		...
//	}, logger)
//
//	sub, err := wmjetstream.NewSubscriber(wmjetstream.SubscriberConfig{
//		Unmarshaler: nats.JetStreamUnmarshaler{},
//		...
//	})
//
// Nats-Msg-Id becomes the UUID, and the inbox takes that for the event's id without further options. Where producers
// send none, let the inbox use a message's place in its stream:
//
//	ib, err := inbox.New(db, inbox.Postgres, inbox.WithEventID(nats.EventID))
//
// Messages of Watermill's own publisher, with its default NATSMarshaler, come out as Watermill makes them, and keep
// their UUID as id. (Its Gob and JSON marshalers have a format of their own that no other producer writes.)
//
// # Message ids
//
// The server itself drops a second message with one Nats-Msg-Id, but only within the stream's duplicate window, 2
// minutes by default, and only when it is published; the inbox has no window and sees redeliveries as well. The id
// has to be the same whenever the producer publishes the event again, and different for any other event of that
// source.
//
// # What coordinates are good for
//
// Stream and sequence recognise what JetStream delivers again: after a missed ack, a crash, to another consumer of the
// stream. They change, and the event is a new one, when
//
//   - the producer publishes the event again;
//   - the message is moved: sourced into another stream, republished, restored with new sequences.
//
// And they repeat when a stream is deleted and made again, or when one inbox reads streams of the same name from two
// accounts or JetStream domains: the new message is then taken for a duplicate of the old one and never handled. Give
// inbox.WithSource a name that tells them apart. An id from the producer has none of these limits.
//
// Core NATS, without JetStream, delivers at most once: there is nothing to deduplicate, and there are no coordinates.
package nats
