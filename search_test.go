package inbox_test

import (
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
)

func TestSearch_looks_from_the_beginning_now_and_then_and_less_often_while_that_is_slow(t *testing.T) {
	t.Parallel()

	const (
		poll = inbox.PollInterval
		slow = 4 * inbox.SlowLook
		rest = inbox.RestAfterLook * slow
	)

	var (
		search = inbox.NewSearch()
		now    = time.Now()
	)

	for i, look := range []struct {
		after time.Duration // the last one ended
		whole bool          // it should be from the beginning
		took  time.Duration
		short bool // it found less than it was to
	}{
		{after: 0, whole: true, took: 1},                                      // the first
		{after: 0, whole: false, took: 1},                                     // there is enough to do
		{after: poll - 2, whole: false, took: 1},                              // and has been for less than poll
		{after: 0, whole: true, took: 1},                                      // now for as long
		{after: 0, whole: false, took: 1, short: true},                        // nothing more there
		{after: 0, whole: true, took: 1, short: true},                         // nor anywhere
		{after: 0, whole: true, took: 1, short: true},                         // looks again, which costs nothing
		{after: 0, whole: true, took: slow, short: true},                      // it does now
		{after: 0, whole: false, took: 1, short: true},                        // it rests
		{after: rest - 2, whole: false, took: 1, short: true},                 // still
		{after: 0, whole: true, took: inbox.SlowLook, short: true},            // rested
		{after: 0, whole: true, took: 10 * poll, short: false},                // slower than there is to be one
		{after: poll, whole: false, took: 1, short: false},                    // rests for all that
		{after: inbox.RestAfterLook*10*poll - poll - 1, whole: true, took: 1}, // rested
	} {
		now = now.Add(look.after)

		if whole := search.Look(now, look.took, look.short); whole != look.whole {
			t.Fatalf("look %d: from the beginning is %t, want %t", i, whole, look.whole)
		}

		now = now.Add(look.took)
	}
}
