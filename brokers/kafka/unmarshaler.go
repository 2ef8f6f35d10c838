package kafka

import (
	"errors"
	"strconv"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// MetadataCoordinates is where [Unmarshaler] keeps a record's coordinates, "topic/partition/offset". It is the
// broker's to tell: a header of that name, which a record copied from one topic to another may carry, is dropped.
const MetadataCoordinates = "kafka_coordinates"

// ErrNoRecord is returned for a nil record.
var ErrNoRecord = errors.New("kafka: no record")

// Unmarshaler is the Unmarshaler for Watermill's kafka.SubscriberConfig. The zero value is ready. It is safe for
// concurrent use.
type Unmarshaler struct{}

var _ wmkafka.Unmarshaler = Unmarshaler{}

// Unmarshal makes a Watermill message of a record. The UUID is the header that Watermill's publisher sets, or empty.
// Headers become metadata, byte for byte, the last of several with one name. A record without UUID gets
// [MetadataCoordinates] as well. The only error is [ErrNoRecord]: Watermill's subscriber reads a record that cannot be
// unmarshaled again and again, and nothing behind it.
func (Unmarshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if record == nil {
		return nil, ErrNoRecord
	}

	uuid := ""
	metadata := make(message.Metadata, len(record.Headers)+1)

	for _, header := range record.Headers {
		switch {
		case header == nil:
		case string(header.Key) == wmkafka.UUIDHeaderKey:
			uuid = string(header.Value)
		default:
			metadata[string(header.Key)] = string(header.Value)
		}
	}

	delete(metadata, MetadataCoordinates)

	if uuid == "" {
		metadata[MetadataCoordinates] = coordinates(record.Topic, record.Partition, record.Offset)
	}

	msg := message.NewMessage(uuid, record.Value)
	msg.Metadata = metadata

	return msg, nil
}

// coordinates are unambiguous, since Kafka allows no slash in a topic's name.
func coordinates(topic string, partition int32, offset int64) string {
	return topic + "/" + strconv.FormatInt(int64(partition), 10) + "/" + strconv.FormatInt(offset, 10)
}
