package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/lib/pq"
)

// The outboxes. A topic of watermill-sql's is a table.
const (
	outboxTopic   = "outbox"   // of the producer, read by the relay
	invoicesTopic = "invoices" // of the consumer; a relay of its own would read it
)

// tables are the producer's and the consumer's. They share a database only to need no second one.
const tables = `
CREATE SCHEMA {schema};
CREATE TABLE {schema}.orders (
	order_id text   PRIMARY KEY,
	customer text   NOT NULL,
	cents    bigint NOT NULL
);
CREATE TABLE {schema}.charges (
	order_id text   NOT NULL,
	customer text   NOT NULL,
	cents    bigint NOT NULL
);
CREATE TABLE {schema}.deliveries (
	event_id text NOT NULL
);`

// query puts the schema into a statement. It is made of a constant and letters and digits.
func (c config) query(text string) string {
	return strings.ReplaceAll(text, "{schema}", pq.QuoteIdentifier(c.schema()))
}

func openDatabase(ctx context.Context, cfg config) (*sql.DB, error) {
	db, err := sql.Open("postgres", cfg.dsn)
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}

	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-db: %w", err), db.Close())
	}

	return db, nil
}

func (s *setting) createTables(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.query(tables)); err != nil {
		return err
	}

	for _, topic := range []string{outboxTopic, invoicesTopic} {
		subscriber, err := s.outboxSubscriber()
		if err != nil {
			return err
		}

		// A publisher in a transaction does not create its table.
		if err := errors.Join(subscriber.SubscribeInitialize(topic), subscriber.Close()); err != nil {
			return err
		}
	}

	return nil
}

func (s *setting) dropTables(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, s.query(`DROP SCHEMA IF EXISTS {schema} CASCADE`))

	return err
}

func (s *setting) outboxSubscriber() (interface {
	message.Subscriber
	message.SubscribeInitializer
}, error,
) {
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromStdSQL(s.db), watermillsql.SubscriberConfig{
		SchemaAdapter: s.messageTables(),
		OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{
			GenerateMessagesOffsetsTableName: func(topic string) string { return s.query(`{schema}."watermill_offsets_` + topic + `"`) },
		},
		PollInterval: 100 * time.Millisecond,
	}, s.logger)
}

func (s *setting) messageTables() watermillsql.SchemaAdapter {
	return watermillsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: func(topic string) string { return s.query(`{schema}."watermill_` + topic + `"`) },
		SubscribeBatchSize:        relayBatch,
	}
}
