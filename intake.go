package inbox

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Bounds of one transaction that stores messages. What arrives meanwhile waits for the next one.
const (
	maxBatch      = 512
	maxBatchBytes = 8 << 20
)

// maxStoredBytes is what the payload and the metadata of a message that is to be stored may come to. PostgreSQL holds 1 GiB in a
// value and needs twice a message's size to take it in.
const maxStoredBytes = 256 << 20

// Pauses before messages are nacked, because many brokers deliver a nacked message again at once.
const (
	nackPause    = 100 * time.Millisecond
	maxNackPause = 5 * time.Second
)

// take reads what the broker delivers in one of its subscriptions.
func (s *subscription) take(messages <-chan *message.Message) {
	for {
		select {
		case msg, ok := <-messages:
			if !ok {
				return
			}

			select {
			case s.arrivals <- msg:
			case <-s.abandoned:
				msg.Nack()

				return
			}
		case <-s.abandoned: // by a broker's subscriber that does not close its channel
			return
		}
	}
}

// splitFrom is the size from which a batch is stored in two transactions at a time: while one waits for the disk, the other
// works. Smaller ones stay in order, and all do where there are ordering keys.
const splitFrom = 16

// storeAll stores what arrives until the intake has ended.
func (s *subscription) storeAll() {
	second := make(chan []*message.Message)
	defer close(second)

	s.storing.Go(func() {
		for batch := range second {
			s.storeBatch(batch)
		}
	})

	var pace pace

	for {
		batch := s.nextBatch(&pace)
		if len(batch) == 0 {
			return
		}

		size, start := len(batch), time.Now()

		if size >= splitFrom && s.set.orderingKey == nil {
			select {
			case second <- batch[size/2:]:
				batch = batch[:size/2]
			default: // it is still at the last one
			}
		}

		s.storeBatch(batch)
		pace = pace.after(size, time.Since(start))
	}
}

// storeBatch stores messages and acks them, or nacks those that it cannot store.
func (s *subscription) storeBatch(batch []*message.Message) {
	arrivals, messages := s.identifyAll(batch)
	if len(arrivals) == 0 {
		return
	}

	if err := s.store(arrivals, messages); err != nil {
		s.inbox.logger.Error("Inbox could not store messages and nacks them", err, s.fields().Add(watermill.LogFields{
			"messages": len(arrivals),
		}))

		failures := s.failures.Add(1)
		s.pause(min(nackPause<<min(failures-1, 10), maxNackPause))

		for _, same := range messages {
			nackAll(same)
		}

		return
	}

	s.failures.Store(0)
}

// pace is what the next batch may become: the acks of the last one have brokers send about as many messages again, which takes
// them a moment. Without waiting for that, small batches and large ones take turns.
type pace struct {
	size     int
	patience time.Duration // a small share of what storing took
}

func (p pace) after(size int, took time.Duration) pace {
	const share, longest = 8, time.Millisecond

	return pace{size: max(size, p.size*7/8), patience: min(took/share, longest)}
}

// nextBatch waits for one message, takes what else is there, and waits a moment for what is likely to come.
func (s *subscription) nextBatch(p *pace) (batch []*message.Message) {
	var bytes int

	add := func(msg *message.Message, ok bool) bool {
		if ok {
			batch = append(batch, msg)
			bytes += sizeOf(msg)
		}

		return ok && len(batch) < maxBatch && bytes < maxBatchBytes
	}

	select {
	case msg, ok := <-s.arrivals:
		if !add(msg, ok) {
			return batch
		}
	case <-s.abandoned:
		return nil
	}

	for {
		select {
		case msg, ok := <-s.arrivals:
			if !add(msg, ok) {
				return batch
			}

			continue
		default:
		}

		if len(batch) >= p.size || p.patience == 0 {
			return batch
		}

		timer := time.NewTimer(p.patience)

		for len(batch) < p.size {
			select {
			case msg, ok := <-s.arrivals:
				if !add(msg, ok) {
					timer.Stop()

					return batch
				}

				continue
			case <-timer.C:
			}

			break
		}

		timer.Stop()

		return batch
	}
}

// identifyAll prepares messages for storing, and nacks those that cannot be stored. Deliveries of one event become one
// arrival with several messages.
func (s *subscription) identifyAll(batch []*message.Message) (arrivals []arrival, messages [][]*message.Message) {
	known := make(map[Key]int, len(batch))
	arrivals = make([]arrival, 0, len(batch))
	messages = make([][]*message.Message, 0, len(batch))

	for n, msg := range batch {
		a, err := s.identify(msg)
		if err != nil {
			s.refuse(msg, err)

			continue
		}

		if i, ok := known[a.key]; ok {
			messages[i] = append(messages[i], msg)

			continue
		}

		known[a.key] = len(arrivals)
		arrivals = append(arrivals, a)
		messages = append(messages, batch[n:n+1:n+1])
	}

	return arrivals, messages
}

func (s *subscription) identify(msg *message.Message) (a arrival, err error) {
	defer func() {
		if r := recover(); r != nil { // in a function of the user's, with no router around it
			err = fmt.Errorf("inbox: identifying a message: panic: %v", r)
		}
	}()

	if size := sizeOf(msg); size > maxStoredBytes {
		return a, fmt.Errorf("inbox: message %q has %d bytes of payload and metadata, more than the %d that can be stored",
			printable(msg.UUID), size, maxStoredBytes)
	}

	original := msg.Context()
	msg.SetContext(withRouted{original, s.routed})
	defer msg.SetContext(original)

	a.event, err = s.inbox.identifyFor(msg, s.consumer)
	if err != nil {
		return a, err
	}

	if s.set.orderingKey != nil {
		a.lane = laneOf(s.queue, s.set.orderingKey(msg))
	}

	a.key = KeyOf(a.event)
	a.msg = msg

	return a, nil
}

// sizeOf counts what of a message can be large.
func sizeOf(msg *message.Message) int {
	size := len(msg.Payload)
	for key, value := range msg.Metadata {
		size += len(key) + len(value)
	}

	return size
}

// refuse gives one message back to the broker without holding up the others.
func (s *subscription) refuse(msg *message.Message, err error) {
	s.inbox.logger.Error("Inbox cannot store a message and nacks it", err, s.fields().Add(watermill.LogFields{
		"message_uuid": printable(msg.UUID),
	}))

	s.handlers.Go(func() {
		s.pause(nackPause)
		msg.Nack()
	})
}

// store writes the arrivals in one transaction and acks all of their messages. As many of the new ones as there is room for go
// out from memory, if nothing older waits in the table.
func (s *subscription) store(arrivals []arrival, messages [][]*message.Message) error {
	reserved := 0
	if !s.behind.Load() && !s.isEnding() {
		reserved = s.slots.take(s.reader.appetite(len(arrivals)))
	}

	for i, n := 0, reserved; i < len(arrivals) && n > 0; i++ {
		if arrivals[i].lane == 0 {
			arrivals[i].lease = true
			n--
		}
	}

	ctx, cancel := s.statement()
	defer cancel()

	var (
		t      = s.newTerm()
		start  time.Time
		stores []stored
	)

	err := s.inbox.retryTransient(func() (err error) {
		start = time.Now()
		stores, err = s.inbox.repo.store(ctx, s.topic, t, arrivals)

		return err
	}, nil)
	if err != nil {
		s.free(reserved)

		return err
	}

	for _, same := range messages {
		ackAll(same)
	}

	due := false

	for i, a := range arrivals {
		original := messages[i][0]

		switch stores[i] {
		case storedLeased:
			reserved--
			s.ready <- s.deliver(leased{fence: fence{a.key, t.number}, attempts: 1}, a.event, handedOut(original), start)
		case storedDue:
			due = true
		case storedBefore:
			s.inbox.skipped(original.Context(), a.event)
		}

		for _, again := range messages[i][1:] {
			s.inbox.skipped(again.Context(), a.event)
		}
	}

	if due {
		s.behind.Store(true)
		s.wakeUp()
	}

	s.free(reserved)

	return nil
}

// handedOut makes a message with the contents of one that the broker has to forget.
func handedOut(msg *message.Message) *message.Message {
	copied := message.NewMessage(msg.UUID, msg.Payload)
	copied.Metadata = msg.Metadata

	return copied
}

func ackAll(messages []*message.Message) {
	for _, msg := range messages {
		msg.Ack()
	}
}

func nackAll(messages []*message.Message) {
	for _, msg := range messages {
		msg.Nack()
	}
}

func (s *subscription) fields() watermill.LogFields {
	return watermill.LogFields{"consumer": s.consumer, "topic": printable(s.topic)}
}
