package kafka

import (
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// ownIDs are the inbox's defaults: its own key, and the CloudEvents id in the spelling of each protocol binding,
// Kafka's first, since a bridge from another broker may keep that broker's.
var ownIDs = []string{"event_id", "ce_id", "ce-id", "Ce-Id", "cloudEvents_id", "cloudEvents:id"}

// EventID is for inbox.WithEventID. It returns what the inbox takes by default (metadata "event_id", the CloudEvents
// id, the UUID) and, where a message has none of them, its [Coordinates].
func EventID(msg *message.Message) string {
	for _, key := range ownIDs {
		if id := msg.Metadata[key]; id != "" {
			return id
		}
	}

	if msg.UUID != "" {
		return msg.UUID
	}

	return Coordinates(msg)
}

// Coordinates is for inbox.WithEventID. It returns where in Kafka a message is, as "topic/partition/offset", whatever
// ids it carries: for producers whose ids are not to be believed. The package comment says when coordinates change.
//
// It is empty for a message of Watermill's publisher outside a router, and for any message that was not read by
// Watermill's Kafka subscriber through [Unmarshaler].
func Coordinates(msg *message.Message) string {
	ctx := msg.Context()
	topic := message.SubscribeTopicFromCtx(ctx)
	partition, hasPartition := wmkafka.MessagePartitionFromCtx(ctx)
	offset, hasOffset := wmkafka.MessagePartitionOffsetFromCtx(ctx)

	// A producer cannot write to the context.
	if topic != "" && hasPartition && hasOffset {
		return coordinates(topic, partition, offset)
	}

	return msg.Metadata[MetadataCoordinates]
}
