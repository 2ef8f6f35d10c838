package faults_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/tests/faults/faultdriver"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// stage is a database of its own for the events of one scenario.
type stage struct {
	scenario

	t         *testing.T
	db        *testdb.DB
	connector *faultdriver.Connector
	values    context.Context
	events    int
}

const outputsPerEvent = 2

func newStage(t *testing.T, engine testdb.Engine, s scenario, values context.Context) *stage {
	t.Helper()

	db := testdb.Open(t, engine)
	db.New(t)
	db.EffectsTable(t)
	db.Exec(t, "CREATE TABLE "+db.Table("outbox")+" (event text NOT NULL, uuid text NOT NULL)")

	return &stage{scenario: s, t: t, db: db, connector: connect(t, db), values: values}
}

func (s *stage) newEvent() string {
	s.events++

	return fmt.Sprintf("event-%d", s.events)
}

func connect(t *testing.T, db *testdb.DB) *faultdriver.Connector {
	t.Helper()

	// The server never crashes here, so nothing depends on commits that reached the disk. Nothing is concurrent either:
	// whoever waits for a lock waits for a transaction that was left open.
	parameter := "&synchronous_commit=off&lock_timeout=10000"
	if db.Engine == testdb.SQLite {
		parameter = "&_pragma=synchronous(off)"
	}

	c, err := faultdriver.Wrap(db.Engine.Driver, db.DSN+parameter)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.CloseIdle(); err != nil {
			t.Error(err)
		}
	})

	return c
}

// handle writes one effect through the transaction and one in a savepoint, and returns outputs that no other run of it
// returns.
func (s *stage) handle(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	insert := "INSERT INTO " + s.db.Table("effects") + " (event, note) VALUES ($1, $2)"

	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return nil, fmt.Errorf("no transaction")
	}

	if _, err := tx.ExecContext(ctx, insert, msg.UUID, "transaction"); err != nil {
		return nil, err
	}

	err := inbox.InTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insert, msg.UUID, "savepoint")

		return err
	})
	if err != nil {
		return nil, err
	}

	out := make([]*message.Message, outputsPerEvent)
	for i := range out {
		out[i] = message.NewMessage(watermill.NewUUID(), []byte("made by run "+watermill.NewUUID()))
		out[i].Metadata.Set("event", msg.UUID)
	}

	return out, nil
}

// outbox is a publisher that writes to a table.
type outbox struct {
	stage *stage
	tx    *sql.Tx
}

func (o outbox) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		_, err := o.tx.ExecContext(context.Background(), "INSERT INTO "+o.stage.db.Table("outbox")+" (event, uuid) VALUES ($1, $2)",
			msg.Metadata.Get("event"), msg.UUID)
		if err != nil {
			return err
		}
	}

	return nil
}

func (o outbox) Close() error { return nil }

// requireOnce looks for every event of the stage in the tables.
func (s *stage) requireOnce() {
	s.t.Helper()

	want := map[string]int{"effects": 2, "inbox": 1, "inbox_outputs": 1, "outbox": 0}
	if s.outbox {
		want["inbox_outputs"], want["outbox"] = 0, outputsPerEvent
	}

	column := map[string]string{"effects": "event", "inbox": "event_id", "outbox": "event"}

	for table, rows := range want {
		if n := s.db.Int(s.t, "SELECT count(*) FROM "+s.db.Table(table)); n != rows*s.events {
			s.t.Errorf("%d rows in %s for %d events, want %d", n, table, s.events, rows*s.events)
		}

		if column := column[table]; column != "" && rows > 0 {
			once := fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM %s GROUP BY %s HAVING count(*) = %d) AS once",
				s.db.Table(table), column, rows)
			if n := s.db.Int(s.t, once); n != s.events {
				s.t.Errorf("%d of %d events have %d rows in %s", n, s.events, rows, table)
			}
		}
	}

	if n := s.db.Int(s.t, "SELECT count(*) FROM (SELECT DISTINCT event, note FROM "+s.db.Table("effects")+") AS kinds"); n != 2*s.events {
		s.t.Errorf("%d different effects of %d events, want two each", n, s.events)
	}
}
