package inbox_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

func TestNew_refuses_bad_options_and_names_them(t *testing.T) {
	t.Parallel()

	ok := func(*message.Message) string { return "" }

	tests := []struct {
		want string
		opts []inbox.Option
	}{
		{"option 2 of 2 is nil", []inbox.Option{inbox.WithTable("a"), nil}},
		{`WithTable("")`, []inbox.Option{inbox.WithTable("")}},
		{"WithEventID", []inbox.Option{inbox.WithEventID()}},
		{"WithEventID: function 2", []inbox.Option{inbox.WithEventID(ok, nil)}},
		{"WithSource", []inbox.Option{inbox.WithSource(nil)}},
		{"WithEventType", []inbox.Option{inbox.WithEventType(nil)}},
		{"WithConsumer", []inbox.Option{inbox.WithConsumer(nil)}},
		{"WithEventTime", []inbox.Option{inbox.WithEventTime(nil)}},
		{"WithTxOptions", []inbox.Option{inbox.WithTxOptions(nil)}},
		{"WithTxOptions: ReadOnly", []inbox.Option{inbox.WithTxOptions(&sql.TxOptions{ReadOnly: true})}},
		{`WithTxOptions: postgres has no isolation level "Snapshot"`, []inbox.Option{inbox.WithTxOptions(&sql.TxOptions{Isolation: sql.LevelSnapshot})}},
		{"WithTxTimeout(0s)", []inbox.Option{inbox.WithTxTimeout(0)}},
		{"WithTxTimeout(-1s)", []inbox.Option{inbox.WithTxTimeout(-time.Second)}},
		{"WithLockTimeout(0s)", []inbox.Option{inbox.WithLockTimeout(0)}},
		{"WithLockTimeout(600h0m0s)", []inbox.Option{inbox.WithLockTimeout(600 * time.Hour)}},
		{"WithLockTimeout(2s) must be shorter than WithTxTimeout(1s)", []inbox.Option{inbox.WithLockTimeout(2 * time.Second), inbox.WithTxTimeout(time.Second)}},
		{"WithMaxTxRetries(0)", []inbox.Option{inbox.WithMaxTxRetries(0)}},
		{"WithMaxTxRetries(-3)", []inbox.Option{inbox.WithMaxTxRetries(-3)}},
		{"WithOutbox", []inbox.Option{inbox.WithOutbox(nil)}},
		{"WithLogger", []inbox.Option{inbox.WithLogger(nil)}},
	}

	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()

			_, err := inbox.New(unconnected(t), inbox.Postgres, test.opts...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New: got %v, want %q", err, test.want)
			}

			if _, err := inbox.Schema(inbox.Postgres, test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Schema: got %v, want %q", err, test.want)
			}
		})
	}
}

func TestNew_refuses_a_nil_db_and_an_unknown_dialect(t *testing.T) {
	t.Parallel()

	if _, err := inbox.New(nil, inbox.Postgres); err == nil || !strings.Contains(err.Error(), "db is nil") {
		t.Errorf("got %v", err)
	}

	var none inbox.Dialect
	for _, d := range []inbox.Dialect{none, 99} {
		if _, err := inbox.New(unconnected(t), d); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("Dialect(%d)", d)) {
			t.Errorf("got %v", err)
		}
	}
}

func TestWithTable(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("x", 50)

	tests := map[string]bool{
		"inbox": true, "billing.inbox": true, "Billing.Inbox": true, "_1": true, long: true, long + "." + long: true,

		"": false, ".": false, "a.": false, ".a": false, "a.b.c": false, "1a": false, "a b": false, "a-b": false, "ä": false,
		`a"b`: false, `inbox"; DROP TABLE charges; --`: false, "a;b": false, "a\x00": false, "a\n": false, long + "x": false,
		"inbox_outputs": false, "inbox_payloads": false, "s.INBOX_MIGRATIONS": false,
	}

	for name, valid := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			ddl, err := inbox.Schema(inbox.Postgres, inbox.WithTable(name))

			switch {
			case valid && err != nil:
				t.Errorf("refused: %v", err)
			case !valid && (err == nil || !strings.Contains(err.Error(), "WithTable(")):
				t.Errorf("got %v and %s", err, ddl)
			}
		})
	}
}

func unconnected(t *testing.T) *sql.DB {
	t.Helper()

	db, err := sql.Open("postgres", "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { db.Close() })

	return db
}
