// Package kafka gives an inbox an event id for Kafka records of producers that are not Watermill.
//
// Watermill knows an event by the header that its own publisher sets. A record of any other producer has an empty
// UUID, and the inbox returns inbox.ErrNoEventID for it unless it carries a header "event_id" or a CloudEvents id
// ("ce_id"). For records that carry nothing, their place in Kafka is an id: topic, partition and offset. Watermill
// puts partition and offset in the message's context and the topic nowhere; [Unmarshaler] keeps all three with the
// message, and [EventID] uses them when there is nothing better:
//
//	sub, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
//		Unmarshaler: kafka.Unmarshaler{},
//		...
//	}, logger)
//
//	ib, err := inbox.New(db, inbox.Postgres, inbox.WithEventID(kafka.EventID))
//
// Records of Watermill's own publisher come out as Watermill's unmarshaler makes them, and keep their UUID as id.
//
// # What coordinates are good for
//
// Coordinates recognise what Kafka delivers again: after a rebalance, a lost commit, a consumer's crash, a reset of
// the group's offset. They change, and the event is a new one, when
//
//   - the producer sends the event again, as an outbox relay does after a crash (Kafka's idempotent producer only
//     covers retries within one session);
//   - the record is moved: to a dead-letter or retry topic and back, by MirrorMaker, to another cluster.
//
// And they repeat when a topic is deleted and made again, or when one inbox reads topics of the same name from two
// clusters: the new record is then taken for a duplicate of the old one and never handled. Give inbox.WithSource a
// name that tells the clusters, or the generations of the topic, apart. An id from the producer has none of these
// limits.
package kafka
