package amqp

import (
	"errors"
	"reflect"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Metadata keys of what AMQP keeps outside of the headers. [Marshaler] sets those that the message has, unless the
// producer sent a header of that name, and none on messages of Watermill's publisher. That a message was redelivered
// is told by Watermill's own wmamqp.IsMessageRedelivered.
const (
	MetadataMessageID       = "amqp_message_id"
	MetadataExchange        = "amqp_exchange"
	MetadataRoutingKey      = "amqp_routing_key"
	MetadataContentType     = "amqp_content_type"
	MetadataContentEncoding = "amqp_content_encoding"
	MetadataType            = "amqp_type"
	MetadataAppID           = "amqp_app_id"
	MetadataUserID          = "amqp_user_id"
	MetadataCorrelationID   = "amqp_correlation_id"
	MetadataReplyTo         = "amqp_reply_to"
	MetadataTimestamp       = "amqp_timestamp" // RFC 3339, UTC
	// MetadataCC is the header CC, with which a producer names more queues. RabbitMQ refuses a message in which that
	// header is text, so under its own name it would keep a handler or a poison queue from passing the message on.
	MetadataCC = "amqp_cc"
)

// ErrNoDelivery is returned for the zero Delivery that a closed channel yields. Watermill's subscriber then reconnects
// without handing out a message that never was.
var ErrNoDelivery = errors.New("amqp: no delivery, the channel is closed")

// Marshaler is the Marshaler for Watermill's amqp.Config. The zero value is ready; the fields of the embedded
// marshaler mean what they mean there. It is safe for concurrent use.
type Marshaler struct {
	wmamqp.DefaultMarshaler
}

var _ wmamqp.Marshaler = Marshaler{}

// Unmarshal makes a Watermill message of a delivery. The UUID is the header that Watermill's publisher sets; when
// that is missing or empty, the message-id property; when that is empty too, empty. Headers become metadata: strings
// and byte arrays byte for byte, numbers in decimal, booleans as true and false, timestamps in RFC 3339 and UTC, void
// as an empty string, arrays and tables (x-death) as JSON with sorted keys. The only error is [ErrNoDelivery].
func (m Marshaler) Unmarshal(delivery amqp.Delivery) (*message.Message, error) {
	if reflect.ValueOf(delivery).IsZero() {
		return nil, ErrNoDelivery
	}

	uuidKey := m.MessageUUIDHeaderKey
	if uuidKey == "" {
		uuidKey = wmamqp.DefaultMessageUUIDHeaderKey
	}

	// Before PreprocessDelivery, as in the embedded marshaler.
	uuid := text(delivery.Headers[uuidKey])

	if m.PreprocessDelivery != nil {
		delivery = m.PreprocessDelivery(delivery)
	}

	metadata := make(message.Metadata, len(delivery.Headers))

	for key, value := range delivery.Headers {
		if key == uuidKey {
			continue
		}

		if _, list := value.([]any); list && key == "CC" {
			key = MetadataCC
		}

		metadata[key] = text(value)
	}

	if uuid == "" {
		uuid = delivery.MessageId
		addProperties(metadata, delivery)
	}

	msg := message.NewMessage(uuid, delivery.Body)
	msg.Metadata = metadata

	return msg, nil
}

func addProperties(metadata message.Metadata, delivery amqp.Delivery) {
	set := func(key, value string) {
		if _, taken := metadata[key]; !taken && value != "" {
			metadata[key] = value
		}
	}

	set(MetadataMessageID, delivery.MessageId)
	set(MetadataExchange, delivery.Exchange)
	set(MetadataRoutingKey, delivery.RoutingKey)
	set(MetadataContentType, delivery.ContentType)
	set(MetadataContentEncoding, delivery.ContentEncoding)
	set(MetadataType, delivery.Type)
	set(MetadataAppID, delivery.AppId)
	set(MetadataUserID, delivery.UserId)
	set(MetadataCorrelationID, delivery.CorrelationId)
	set(MetadataReplyTo, delivery.ReplyTo)

	if !delivery.Timestamp.IsZero() {
		set(MetadataTimestamp, timeText(delivery.Timestamp))
	}
}

// MessageID is for inbox.WithEventID. It returns the id that [Marshaler] found: Watermill's, or the message-id
// property. The inbox takes that one by default as well, but after "event_id" and the CloudEvents id: use MessageID
// alone where producers send headers of those names that are not what they seem.
func MessageID(msg *message.Message) string { return msg.UUID }
