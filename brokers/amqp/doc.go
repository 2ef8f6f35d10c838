// Package amqp lets Watermill's AMQP subscriber take messages from producers that are not Watermill, so that an inbox
// can tell them apart.
//
// Watermill's own marshaler knows an event only by the header that Watermill's publisher sets: messages of all other
// producers have an empty UUID. And it refuses a message with any header that is not a string, as every message has
// that went through a dead-letter exchange or came back from a quorum queue; such a message is requeued and refused
// forever. [Marshaler] takes its place:
//
//	config := wmamqp.NewDurableQueueConfig(uri)
//	config.Marshaler = amqp.Marshaler{}
//	sub, err := wmamqp.NewSubscriber(config, logger)
//
// The message-id property becomes the UUID, and the inbox takes that for the event's id without further options. (A
// header "event_id" and the CloudEvents id come first; [MessageID] changes that.) A message without any id keeps an
// empty UUID, and the inbox returns inbox.ErrNoEventID for it: AMQP has no coordinates to fall back on, since a
// delivery tag is only good for one delivery. Messages of Watermill's own publisher come out as Watermill's marshaler
// makes them.
//
// # Message ids
//
// The message-id has to be the same whenever the producer publishes the event again, and different for any other event
// of that source. The source is the topic unless the event names one, so several producers that share a queue, each
// counting its messages from one, need inbox.WithSource; [MetadataAppID] may tell them apart.
//
// # Dead letters
//
// RabbitMQ keeps the message-id and all headers when it dead-letters a message, so the event stays the same event on a
// queue behind a dead-letter exchange. Its source does not unless the event names one: the topic is another there. Set
// inbox.WithSource where a dead letter that was handled before must be recognised.
package amqp
