package amqp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// text returns a header's value as metadata. The types are those that amqp091-go reads from the wire.
func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case amqp.Decimal:
		return decimalText(v)
	case time.Time:
		return timeText(v)
	case amqp.Table, []any:
		return jsonText(v)
	default: // integers
		return fmt.Sprint(v)
	}
}

// decimalText prints Value / 10^Scale without losing a digit.
func decimalText(d amqp.Decimal) string {
	sign, digits := "", strconv.FormatInt(int64(d.Value), 10)
	if d.Value < 0 {
		sign, digits = "-", digits[1:]
	}

	scale := int(d.Scale)
	if scale == 0 {
		return sign + digits
	}

	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}

	point := len(digits) - scale

	return sign + digits[:point] + "." + digits[point:]
}

// timeText is RFC 3339, and seconds since 1970 for years that it cannot write, as of a producer that sends
// nanoseconds.
func timeText(t time.Time) string {
	const year0, year10000 = -62167219200, 253402300800

	if s := t.Unix(); s < year0 || s >= year10000 {
		return strconv.FormatInt(s, 10)
	}

	return t.UTC().Format(time.RFC3339)
}

func jsonText(value any) string {
	var b bytes.Buffer

	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(jsonValue(value)); err != nil {
		return fmt.Sprint(value)
	}

	return strings.TrimSuffix(b.String(), "\n")
}

// jsonValue replaces what JSON cannot hold, at any depth, by text.
func jsonValue(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		object := make(map[string]any, len(v))
		for key, field := range v {
			object[key] = jsonValue(field)
		}

		return object
	case []any:
		array := make([]any, len(v))
		for i, element := range v {
			array[i] = jsonValue(element)
		}

		return array
	case []byte:
		if !utf8.Valid(v) {
			return base64.StdEncoding.EncodeToString(v)
		}

		return string(v)
	case float32:
		return jsonFloat(float64(v), v)
	case float64:
		return jsonFloat(v, v)
	case amqp.Decimal:
		return json.Number(decimalText(v))
	case time.Time:
		return timeText(v)
	default: // nil, strings, booleans, integers
		return v
	}
}

func jsonFloat(v float64, original any) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return text(original)
	}

	return original
}
