package brokers

import (
	"context"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox/tests/testdb"
)

// goChannel keeps its messages and hands all of them to every new subscription. It dies with its process: what its
// producer did not see processed, it sends again to the next one.
var goChannel = &broker{
	name: "gochannel",
	address: func(t *testing.T, _ string, db *testdb.DB) string {
		t.Helper()
		t.Cleanup(func() { mustClose(t, goChannelAt(db.Schema)) })

		return db.Schema
	},
	publisher: func(addr string, _ watermill.LoggerAdapter) (message.Publisher, error) {
		return goChannelPublisher{goChannelAt(addr)}, nil
	},
	subscriber: func(addr, _ string, _ watermill.LoggerAdapter) (message.Subscriber, error) {
		ctx, cancel := context.WithCancel(context.Background())

		return &goChannelSubscriber{pubSub: goChannelAt(addr), open: ctx, close: cancel}, nil
	},
}

var goChannels struct {
	sync.Mutex
	byAddr map[string]*gochannel.GoChannel
}

// goChannelAt returns the one that lives in this process under that address.
func goChannelAt(addr string) *gochannel.GoChannel {
	goChannels.Lock()
	defer goChannels.Unlock()

	if goChannels.byAddr == nil {
		goChannels.byAddr = make(map[string]*gochannel.GoChannel)
	}

	pubSub, ok := goChannels.byAddr[addr]
	if !ok {
		pubSub = gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
		goChannels.byAddr[addr] = pubSub
	}

	return pubSub
}

// Closing a GoChannel ends the broker; these two end a client of it.

type goChannelPublisher struct{ *gochannel.GoChannel }

func (goChannelPublisher) Close() error { return nil }

type goChannelSubscriber struct {
	pubSub *gochannel.GoChannel
	open   context.Context
	close  context.CancelFunc
}

func (s *goChannelSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.open, cancel)

	return s.pubSub.Subscribe(ctx, topic)
}

func (s *goChannelSubscriber) Close() error {
	s.close()

	return nil
}
