package nats

import "github.com/ThreeDotsLabs/watermill/message"

// ownIDs are the inbox's defaults: its own key, and the CloudEvents id in the spelling of each protocol binding,
// since a bridge from another broker may keep that broker's.
var ownIDs = []string{"event_id", "ce_id", "ce-id", "Ce-Id", "cloudEvents_id", "cloudEvents:id"}

// EventID is for inbox.WithEventID. It returns what the inbox takes by default (metadata "event_id", the CloudEvents
// id, the UUID, which is Nats-Msg-Id for producers that are not Watermill) and, where a message has none of them, its
// [Coordinates].
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

// MessageID is for inbox.WithEventID. It returns the id that the unmarshalers of this package found: Watermill's, or
// Nats-Msg-Id. The inbox takes that one by default as well, but after "event_id" and the CloudEvents id: use MessageID
// alone where producers send headers of those names that are not what they seem.
func MessageID(msg *message.Message) string { return msg.UUID }

// Coordinates is for inbox.WithEventID. It returns where in JetStream a message is, as "stream/sequence", whatever
// ids it carries: for producers whose ids are not to be believed. The package comment says when coordinates change.
// It is empty for messages of Watermill's publisher, and for those that did not come from JetStream through an
// unmarshaler of this package.
func Coordinates(msg *message.Message) string { return msg.Metadata[MetadataCoordinates] }
