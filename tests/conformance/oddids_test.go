package conformance_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/require"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// oddIDs are all different byte for byte, and look the same to one database, collation or column or another.
var oddIDs = []string{
	"order-1", "ORDER-1", "Order-1", "order-1 ", "order-1  ", " order-1", "order-1\t", "order-1\n", "order-1\r\n",
	"order-1\x00", "order-1\x00a", "\x00order-1", "\x00", "\x00\x00",
	"\xff", "\xfe", "order-1\xff", "\xc3\x28", "\xed\xa0\x80", "\uFFFD", "\uFFFD\uFFFD",
	"caf\u00e9", "cafe\u0301", "CAF\u00c9", "ﬁ", "fi", "ß", "ss", "SS", "ı", "i", "İ", "\u2126", "\u03a9",
	"a\u200bb", "ab", "a\u00adb", "a\u202eb", "\ufeffab",
	"1", "01", "1.0", "1e0", "+1", "0x1", "NULL", "null", "''", `"`, `\x00`, `\\x00`, "'; DROP TABLE inbox; --", "%", "_", "$1", "?1",
	strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 255) + "y", strings.Repeat("x", 255) + "z",
	strings.Repeat("é", 127) + "a", strings.Repeat("é", 128) + "a", strings.Repeat("é", 128) + "b",
	strings.Repeat("l", 100_000), strings.Repeat("l", 100_000-1) + "m", strings.Repeat("l", 100_000-1) + "\x00",
	"01890a5d-ac96-774b-bcce-b302099a8057", "01890A5D-AC96-774B-BCCE-B302099A8057", "01890a5dac96774bbcceb302099a8057",
	"{01890a5d-ac96-774b-bcce-b302099a8057}", "urn:uuid:01890a5d-ac96-774b-bcce-b302099a8057",
	"01H45AXB4PEX5VSKNK084SN02Q", "01h45axb4pex5vsknk084sn02q",
}

func TestOddIDs(t *testing.T) {
	t.Parallel()

	// Each way puts the odd string into one part of the identity.
	ways := map[string]func(odd string) (opt inbox.Option, msg *message.Message){
		"id":       func(odd string) (inbox.Option, *message.Message) { return consumer(billing), delivery(odd) },
		"consumer": func(odd string) (inbox.Option, *message.Message) { return consumer(odd), delivery("e1") },
		"source": func(odd string) (inbox.Option, *message.Message) {
			return consumer(billing), &message.Message{UUID: "e1", Metadata: message.Metadata{"event_source": odd}}
		},
	}

	for part, way := range ways {
		forEachEngine(t, "each odd "+part+" is an event of its own and deduplicated", func(t *testing.T, db *testdb.DB) {
			newInbox(t, db)

			for range 2 {
				for i, odd := range oddIDs {
					opt, msg := way(odd)

					ib, err := inbox.New(db.DB, db.Engine.Dialect, inbox.WithTable(db.Inbox()), opt)
					require.OK(t, err)

					_, err = deliver(ib, func(msg *message.Message) ([]*message.Message, error) {
						return nil, effectNamed(db, msg.Context(), fmt.Sprint(i))
					}, msg)
					if err != nil {
						t.Fatalf("%.40q: %v", odd, err)
					}
				}
			}

			var all []string
			for i := range oddIDs {
				all = append(all, fmt.Sprint(i))
			}

			db.RequireOnce(t, all...)
			requireRecorded(t, db, len(oddIDs))
			requirePrintable(t, db)
		})
	}

	forEachEngine(t, "an odd type does not matter", func(t *testing.T, db *testdb.DB) {
		ib, w := newInbox(t, db), newWorker(db)

		for i, odd := range oddIDs {
			for range 2 {
				msg := delivery(fmt.Sprint(i))
				msg.Metadata.Set("event_type", odd)

				_, err := deliver(ib, w.handle, msg)
				require.OK(t, err)
			}
		}

		w.requireRuns(t, len(oddIDs))
		requirePrintable(t, db)
	})

	forEachEngine(t, "consumer, source and id do not run into each other", func(t *testing.T, db *testdb.DB) {
		w := newWorker(db)

		for _, parts := range [][3]string{{"a", "b", "c"}, {"ab", "", "c"}, {"a", "bc", "d"}, {"a", "", "bc"}, {"abc", "", "d"}, {"a", "b\x00", "c"}, {"a", "b", "\x00c"}} {
			for range 2 {
				_, err := deliver(newInbox(t, db, consumer(parts[0])), func(*message.Message) ([]*message.Message, error) {
					w.runs.Add(1)

					return nil, nil
				}, &message.Message{UUID: parts[2], Metadata: message.Metadata{"event_source": parts[1]}})
				require.OK(t, err)
			}
		}

		w.requireRuns(t, 7)
	})

	forEachEngine(t, "outputs of odd events are their own", func(t *testing.T, db *testdb.DB) {
		ib := newInbox(t, db)

		for range 2 {
			for i, odd := range oddIDs {
				outputs, err := deliver(ib, func(*message.Message) ([]*message.Message, error) {
					return message.Messages{delivery(fmt.Sprint(i))}, nil
				}, delivery(odd))
				require.OK(t, err)
				require.Equal(t, "outputs", uuids(outputs), []string{fmt.Sprint(i)})
			}
		}
	})
}

// requirePrintable fails unless the columns for people hold short and printable text.
func requirePrintable(t testing.TB, db *testdb.DB) {
	t.Helper()

	rows, err := db.QueryContext(t.Context(), "SELECT consumer, source, event_id, event_type FROM "+db.Table("inbox"))
	require.OK(t, err)
	defer rows.Close()

	for rows.Next() {
		var columns [4]string

		require.OK(t, rows.Scan(&columns[0], &columns[1], &columns[2], &columns[3]))

		for _, text := range columns {
			if len(text) > 255 || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("stored %q (%d bytes)", text, len(text))
			}
		}
	}

	require.OK(t, rows.Err())
}
