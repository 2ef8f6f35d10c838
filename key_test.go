package inbox_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/google/uuid"

	"github.com/watermill-inbox/inbox"
)

// The vectors come from an implementation in another language, testdata/key_vectors.py.
func TestKeyOf_agrees_with_the_published_vectors(t *testing.T) {
	t.Parallel()

	file, err := os.ReadFile("testdata/key_vectors.json")
	if err != nil {
		t.Fatal(err)
	}

	var vectors []struct {
		Name, Consumer, Source, Key string
		ID                          []byte
		IDRepeat                    []any  `json:"id_repeat"` // what precedes ID: a byte in base64, how often
		TimeMS                      *int64 `json:"time_ms"`
	}
	if err := json.Unmarshal(file, &vectors); err != nil {
		t.Fatal(err)
	}

	var identities sync.Map // of consumer, source and id by key

	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()

			id := v.ID
			if v.IDRepeat != nil {
				var repeated []byte
				if err := json.Unmarshal([]byte(`"`+v.IDRepeat[0].(string)+`"`), &repeated); err != nil {
					t.Fatal(err)
				}

				id = append(bytes.Repeat(repeated, int(v.IDRepeat[1].(float64))), id...)
			}

			ev := inbox.Event{Consumer: v.Consumer, Source: v.Source, ID: string(id), Type: "not part of the key"}
			if v.TimeMS != nil {
				ev.Time = time.UnixMilli(*v.TimeMS)
			}

			key := inbox.KeyOf(ev)
			if got := hex.EncodeToString(key[:]); got != v.Key {
				t.Errorf("key is %s, want %s", got, v.Key)
			}

			identity := [3]string{v.Consumer, v.Source, string(id)}
			if other, taken := identities.LoadOrStore(key, identity); taken && other != identity {
				t.Errorf("same key as another event: %.100q", other)
			}
		})
	}
}

func TestKey_is_printed_as_a_UUID(t *testing.T) {
	t.Parallel()

	want := uuid.New()
	if got := inbox.Key(want).String(); got != want.String() {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestKeyOf_orders_keys_by_time_and_keeps_untimed_ones_apart(t *testing.T) {
	t.Parallel()

	ev := inbox.Event{Consumer: "c", ID: "x"}
	untimed := inbox.KeyOf(ev)

	var before inbox.Key
	for _, year := range []int{1970, 1999, 2026, 2500, 6000} {
		ev.Time = time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)

		key := inbox.KeyOf(ev)
		if bytes.Compare(before[:], key[:]) >= 0 || bytes.Compare(key[:], untimed[:]) >= 0 {
			t.Errorf("key of %d is out of order: %s", year, key)
		}

		before = key
	}
}

func TestKeyOf_reads_the_time_of_ULIDs_made_by_Watermill(t *testing.T) {
	t.Parallel()

	start := time.Now().Truncate(time.Millisecond)

	for _, id := range []string{watermill.NewULID(), strings.ToLower(watermill.NewULID())} {
		key := inbox.KeyOf(inbox.Event{Consumer: "c", ID: id})

		var stamp int64
		for _, b := range key[:6] {
			stamp = stamp<<8 | int64(b)
		}

		if made := time.UnixMilli(stamp); made.Before(start) || made.After(time.Now()) {
			t.Errorf("time of %s is %s", id, made)
		}
	}
}
