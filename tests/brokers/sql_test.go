package brokers

import (
	stdsql "database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// watermillSQL has its tables in the schema of the test. The subscriber polls on after an error of the database.
var watermillSQL = &broker{
	name:   "sql",
	server: "postgres",
	address: func(_ *testing.T, server string, db *testdb.DB) string {
		return server + "&search_path=" + db.Schema // the DSN ends in ?sslmode=disable
	},
	publisher: func(addr string, log watermill.LoggerAdapter) (message.Publisher, error) {
		db, err := stdsql.Open("postgres", addr)
		if err != nil {
			return nil, err
		}

		pub, err := sql.NewPublisher(sql.BeginnerFromStdSQL(db), sql.PublisherConfig{
			SchemaAdapter:        sqlMessages,
			AutoInitializeSchema: true,
		}, log)

		return &sqlPublisher{pub, db}, err
	},
	subscriber: func(addr, group string, log watermill.LoggerAdapter) (message.Subscriber, error) {
		db, err := stdsql.Open("postgres", addr)
		if err != nil {
			return nil, err
		}

		sub, err := sql.NewSubscriber(sql.BeginnerFromStdSQL(db), sql.SubscriberConfig{
			ConsumerGroup:  group,
			PollInterval:   20 * time.Millisecond,
			ResendInterval: 20 * time.Millisecond,
			RetryInterval:  100 * time.Millisecond,
			SchemaAdapter:  sqlMessages,
			OffsetsAdapter: sql.DefaultPostgreSQLOffsetsAdapter{},
		}, log)

		return &sqlSubscriber{sub, db}, err
	},
}

var sqlMessages = sql.DefaultPostgreSQLSchema{
	GeneratePayloadType: func(string) string { return "BYTEA" }, // the default takes nothing but JSON
	SubscribeBatchSize:  1,                                      // of a larger batch everything comes again after one failure
}

type sqlPublisher struct {
	*sql.Publisher

	db *stdsql.DB
}

func (p *sqlPublisher) Close() error { return errors.Join(p.Publisher.Close(), p.db.Close()) }

type sqlSubscriber struct {
	*sql.Subscriber

	db *stdsql.DB
}

func (s *sqlSubscriber) Close() error { return errors.Join(s.Subscriber.Close(), s.db.Close()) }
