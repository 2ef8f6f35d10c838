package brokers

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-inbox/inbox"
)

// tally counts, event by event, what the hooks of inboxes told.
type tally struct {
	mu                           sync.Mutex
	processed, duplicate, failed map[string]int
}

func newTally() *tally {
	return &tally{processed: map[string]int{}, duplicate: map[string]int{}, failed: map[string]int{}}
}

func (y *tally) hooks() inbox.Hooks {
	return inbox.Hooks{
		Processed: func(_ context.Context, ev inbox.Event) { y.count(y.processed, ev.ID) },
		Duplicate: func(_ context.Context, ev inbox.Event) { y.count(y.duplicate, ev.ID) },
		Failed:    func(_ context.Context, ev inbox.Event, _ error) { y.count(y.failed, ev.ID) },
	}
}

func (y *tally) count(counts map[string]int, event string) {
	y.mu.Lock()
	defer y.mu.Unlock()

	counts[event]++
}

func (y *tally) duplicatesOf(event string) int {
	y.mu.Lock()
	defer y.mu.Unlock()

	return y.duplicate[event]
}

func (y *tally) failuresOf(event string) int {
	y.mu.Lock()
	defer y.mu.Unlock()

	return y.failed[event]
}

// sums returns what was told of all events.
func (y *tally) sums() (processed, duplicate, failed int) {
	y.mu.Lock()
	defer y.mu.Unlock()

	return sum(y.processed), sum(y.duplicate), sum(y.failed)
}

// acked returns how many deliveries ended well.
func (y *tally) acked() int {
	processed, duplicate, _ := y.sums()

	return processed + duplicate
}

// handled returns how many different events were acked.
func (y *tally) handled() int {
	y.mu.Lock()
	defer y.mu.Unlock()

	events := maps.Clone(y.processed)
	maps.Copy(events, y.duplicate)

	return len(events)
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}

	return total
}

// buffer collects output of several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.Write(p)
}

// end returns the last of what was written.
func (b *buffer) end() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	const most = 16 << 10
	text := b.buf.String()

	return text[max(0, len(text)-most):]
}

// newLog returns a log that is shown when the test fails.
func newLog(t *testing.T) watermill.LoggerAdapter {
	t.Helper()

	var b buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log:\n%s", b.end())
		}
	})

	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(&b, nil)))
}
