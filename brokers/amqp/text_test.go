package amqp

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
)

var at = time.Unix(1709211601, 0)

// xDeath is the header that RabbitMQ puts on a message that was rejected once, as amqp091-go reads it.
var xDeath = []any{amqp.Table{
	"count":        int64(1),
	"exchange":     "",
	"queue":        "orders",
	"reason":       "rejected",
	"routing-keys": []any{"orders"},
	"time":         at,
}}

// The types are all that amqp091-go reads. Report: watermill-amqp 23.
func TestUnmarshal_makes_text_of_a_header_of_any_type(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"string":                  {"a\x00\xffü", "a\x00\xffü"},
		"empty string":            {"", ""},
		"bytes":                   {[]byte{'a', 0, 0xff}, "a\x00\xff"},
		"void":                    {nil, ""},
		"true":                    {true, "true"},
		"false":                   {false, "false"},
		"int8":                    {int8(-128), "-128"},
		"uint8":                   {uint8(255), "255"},
		"int16":                   {int16(-32768), "-32768"},
		"uint16":                  {uint16(65535), "65535"},
		"int32":                   {int32(math.MinInt32), "-2147483648"},
		"uint32":                  {uint32(math.MaxUint32), "4294967295"},
		"int64":                   {int64(math.MinInt64), "-9223372036854775808"},
		"float32":                 {float32(0.1), "0.1"},
		"float64":                 {float64(1) / 3, "0.3333333333333333"},
		"NaN":                     {math.NaN(), "NaN"},
		"infinity":                {float32(math.Inf(-1)), "-Inf"},
		"decimal":                 {amqp.Decimal{Scale: 2, Value: 12345}, "123.45"},
		"whole decimal":           {amqp.Decimal{Scale: 0, Value: -7}, "-7"},
		"small decimal":           {amqp.Decimal{Scale: 3, Value: -5}, "-0.005"},
		"decimal with zeros":      {amqp.Decimal{Scale: 2, Value: 0}, "0.00"},
		"smallest decimal":        {amqp.Decimal{Scale: 10, Value: math.MinInt32}, "-0.2147483648"},
		"timestamp":               {at, "2024-02-29T13:00:01Z"},
		"timestamp in ns":         {time.Unix(1709211601000000000, 0), "1709211601000000000"},
		"timestamp before year 0": {time.Unix(-62167219201, 0), "-62167219201"},
		"last timestamp of 9999":  {time.Unix(253402300799, 0), "9999-12-31T23:59:59Z"},
		"empty array":             {[]any{}, "[]"},
		"empty table":             {amqp.Table{}, "{}"},
		"nil table":               {amqp.Table(nil), "{}"},
		"array of all types": {
			[]any{
				"<a>", []byte("b"),
				[]byte{0xff},
				nil, true, int8(1), float32(0.1), math.NaN(), math.Inf(1),
				amqp.Decimal{Scale: 1, Value: 15},
				at,
				[]any{},
				amqp.Table{"k": uint32(2)},
			},
			`["<a>","b","/w==",null,true,1,0.1,"NaN","+Inf",1.5,"2024-02-29T13:00:01Z",[],{"k":2}]`,
		},
		"x-death": {
			xDeath,
			`[{"count":1,"exchange":"","queue":"orders","reason":"rejected","routing-keys":["orders"],` +
				`"time":"2024-02-29T13:00:01Z"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			msg := unmarshal(t, Marshaler{}, amqp.Delivery{Headers: amqp.Table{"h": c.value}})
			requireMetadata(t, msg, message.Metadata{"h": c.want})
		})
	}
}

func TestUnmarshal_survives_a_table_as_deep_as_a_frame_can_hold(t *testing.T) {
	t.Parallel()

	var deep any = "bottom"
	for range 131072 / 6 { // RabbitMQ's default frame_max; a level is a key of one byte, a type and a length
		deep = amqp.Table{"": deep}
	}

	msg := unmarshal(t, Marshaler{}, amqp.Delivery{Headers: amqp.Table{"deep": deep}})
	if got := msg.Metadata.Get("deep"); len(got) < 131072/6 {
		t.Fatalf("%d bytes", len(got))
	}
}

func FuzzUnmarshal_makes_JSON_of_tables(f *testing.F) {
	f.Add("key", "value", []byte("bytes"), int64(1), 1.5, uint8(2), int32(-3))
	f.Add("", "\xff\x00", []byte{0xff}, int64(math.MaxInt64), math.NaN(), uint8(255), int32(math.MinInt32))
	f.Add("<&>", "\u2028", []byte(nil), int64(math.MinInt64), math.Inf(1), uint8(0), int32(0))

	f.Fuzz(func(t *testing.T, key, s string, b []byte, n int64, float float64, scale uint8, decimal int32) {
		table := amqp.Table{key: []any{
			s, b, n, int8(n), uint8(n), int16(n), uint16(n), int32(n), uint32(n), float, float32(float), n > 0, nil,
			amqp.Decimal{Scale: scale, Value: decimal},
			time.Unix(n, 0),
			amqp.Table{s: b},
		}}

		delivery := amqp.Delivery{Headers: amqp.Table{"h": table}, Timestamp: time.Unix(n, 0)}
		msg := unmarshal(t, Marshaler{}, delivery)

		if h := msg.Metadata.Get("h"); !json.Valid([]byte(h)) {
			t.Fatalf("not JSON: %s", h)
		}

		if again := unmarshal(t, Marshaler{}, delivery); !again.Equals(msg) {
			t.Fatalf("differs from one delivery to the next: %q, %q", msg.Metadata, again.Metadata)
		}
	})
}
