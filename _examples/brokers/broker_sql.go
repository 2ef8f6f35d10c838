package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// openSQL uses PostgreSQL as a broker. Watermill's subscriber keeps a transaction of its own open for each message; the
// inbox does not use that one, so -db and -broker-addr may be different databases, or the same.
func openSQL(ctx context.Context, addr, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	db, err := sql.Open("postgres", addr)
	if err != nil {
		return nil, err
	}

	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}

	publisher, err := watermillsql.NewPublisher(watermillsql.BeginnerFromStdSQL(db), watermillsql.PublisherConfig{
		SchemaAdapter:        watermillsql.DefaultPostgreSQLSchema{},
		AutoInitializeSchema: true,
	}, logger)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}

	subscriber, err := watermillsql.NewSubscriber(watermillsql.BeginnerFromStdSQL(db), watermillsql.SubscriberConfig{
		SchemaAdapter:    watermillsql.DefaultPostgreSQLSchema{},
		OffsetsAdapter:   watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true,
		PollInterval:     100 * time.Millisecond,
	}, logger)
	if err != nil {
		return nil, errors.Join(err, publisher.Close(), db.Close())
	}

	return &broker{publisher: publisher, subscriber: subscriber, close: db.Close}, nil
}
