package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
)

func openGoChannel(_ context.Context, _, _ string, logger watermill.LoggerAdapter) (*broker, error) {
	pubSub := gochannel.NewGoChannel(gochannel.Config{}, logger)

	return &broker{publisher: pubSub, subscriber: pubSub}, nil
}
