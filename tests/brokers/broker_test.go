package brokers

import (
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/tests/servers"
	"github.com/watermill-inbox/inbox/tests/testdb"
)

// broker makes publishers and subscribers as a service would configure them, with short timeouts.
type broker struct {
	name string
	// server is the kind of process behind it, "" when it lives in the process that uses it.
	server string
	// address completes the address of a server with what keeps tests apart on it. Optional.
	address    func(t *testing.T, server string, db *testdb.DB) string
	publisher  func(addr string, log watermill.LoggerAdapter) (message.Publisher, error)
	subscriber func(addr, group string, log watermill.LoggerAdapter) (message.Subscriber, error)
}

var brokers = []*broker{rabbitMQ, kafkaBroker, natsJetStream, watermillSQL, goChannel}

func brokerByName(name string) *broker {
	return brokers[slices.IndexFunc(brokers, func(b *broker) bool { return b.name == name })]
}

// onEveryBroker runs a scenario in parallel subtests named after the brokers.
func onEveryBroker(t *testing.T, scenario func(t *testing.T, b *broker)) {
	t.Helper()

	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			scenario(t, b)
		})
	}
}

// inProcess tells that the broker dies with the process, and that processes cannot share it.
func (b *broker) inProcess() bool { return b.server == "" }

// route is a topic of a broker, and the group that consumes it.
type route struct {
	Broker, Addr, Topic, Group string
}

var serial atomic.Int64

// newRoute returns a topic that no other test uses, on the broker's shared server.
func newRoute(t *testing.T, b *broker, db *testdb.DB) route {
	t.Helper()

	server := ""

	if !b.inProcess() {
		var err error
		if server, err = servers.FromEnv(b.server); err != nil {
			t.Fatal(err)
		}
	}

	return newRouteOn(t, b, server, db)
}

// newRouteOn is newRoute for a server that the test started for itself. Topic and group exist when it returns, so that
// nothing that is published before the first subscription gets lost.
func newRouteOn(t *testing.T, b *broker, server string, db *testdb.DB) route {
	t.Helper()

	id := fmt.Sprintf("%x_%d", time.Now().UnixNano(), serial.Add(1))
	r := route{Broker: b.name, Addr: server, Topic: "orders_" + id, Group: "billing_" + id}

	if b.address != nil {
		r.Addr = b.address(t, server, db)
	}

	sub, err := r.subscriber(newLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, sub)

	if initializer, ok := sub.(message.SubscribeInitializer); ok {
		if err := initializer.SubscribeInitialize(r.Topic); err != nil {
			t.Fatal(err)
		}
	}

	return r
}

func mustClose(t *testing.T, c io.Closer) {
	t.Helper()

	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func (r route) broker() *broker { return brokerByName(r.Broker) }

func (r route) publisher(log watermill.LoggerAdapter) (message.Publisher, error) {
	return r.broker().publisher(r.Addr, log)
}

func (r route) subscriber(log watermill.LoggerAdapter) (message.Subscriber, error) {
	return r.broker().subscriber(r.Addr, r.Group, log)
}
