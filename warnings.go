package inbox

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// warnings are about what the inbox sees users do and cannot mend. Each is logged once.
type warnings struct {
	earlyAck, sharedIDs sync.Once
}

// warnOfEarlyAck says, once, that messages are acked before the commit: they are lost if it fails.
func (ib *Inbox) warnOfEarlyAck(s *scope) {
	if isClosed(s.msg.Acked()) {
		ib.warned.earlyAck.Do(func() {
			ib.logger.Error("Inbox saw a message acked before its commit; leave the ack to the router",
				errors.New("a handler acks by itself, or InstantAck is inside of the inbox"), fieldsOf(s.event))
		})
	}
}

// reportEarlyAck says, every time, that an event is lost for which the broker, or the table of stored messages, has an ack.
func (ib *Inbox) reportEarlyAck(msg *message.Message, ev Event, err error) {
	if isClosed(msg.Acked()) {
		ib.logger.Error("Inbox sees an event lost: its handler acked the message and then failed", err, fieldsOf(ev))
	}
}

// warnOfSharedQueue says that two handlers share the events of one consumer, of which each gets a part. For a backlog beside
// a broker that is as it should be.
func (ib *Inbox) warnOfSharedQueue(s *subscription) {
	if s.broker != nil && ib.running.shares(s) {
		ib.logger.Error("Inbox sees a second subscription of a consumer to a topic: each event goes to one of them only",
			errors.New("give each handler a Subscriber of its own, with the handler's name; WithConcurrency is for more at a time"), s.fields())
	}
}

// warnOfSharedIDs says, once, that a handler returns several messages with one event id, as copies of the incoming message
// have it: the next inbox takes them for one event and handles only the first.
func (ib *Inbox) warnOfSharedIDs(s *scope, outputs []*message.Message) {
	if len(outputs) < 2 {
		return
	}

	ids := make(map[string]bool, len(outputs))

	for _, output := range outputs {
		id := defaultEventID(output)
		if id != "" && ids[id] {
			ib.warned.sharedIDs.Do(func() {
				ib.logger.Error("Inbox saw a handler return several messages with one event id, of which the next inbox handles one",
					fmt.Errorf("event id %q: remove its metadata from copies of the incoming message", printable(id)), fieldsOf(s.event))
			})

			return
		}

		ids[id] = true
	}
}
