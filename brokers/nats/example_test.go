package nats_test

import (
	"fmt"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	natsgo "github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/brokers/nats"
)

func Example() {
	config := wmnats.SubscriberConfig{
		URL:         "nats://localhost:4222",
		Unmarshaler: nats.Unmarshaler{},
	} // for wmnats.NewSubscriber(config, logger); and inbox.WithEventID(nats.EventID) for inbox.New

	// What a producer that is not Watermill sent: without an id, and with one.
	bare := natsgo.NewMsg("orders")
	bare.Reply = "$JS.ACK.ORDERS.billing.1.1037.1.1709211601000000000.0" // as JetStream delivers it
	bare.Sub = &natsgo.Subscription{}

	named := natsgo.NewMsg("orders")
	named.Header.Set(natsgo.MsgIdHdr, "order-7-paid")
	named.Header.Add("Tag", "paid")
	named.Header.Add("Tag", "express")

	for _, m := range []*natsgo.Msg{bare, named} {
		msg, err := config.Unmarshaler.Unmarshal(m)
		if err != nil {
			panic(err)
		}

		fmt.Printf("%s %q\n", nats.EventID(msg), msg.Metadata.Get("Tag"))
	}
	// Output:
	// ORDERS/1037 ""
	// order-7-paid "paid, express"
}
