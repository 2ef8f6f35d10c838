package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
)

func TestSearch_looks_from_the_beginning_now_and_then_and_less_often_while_that_is_slow(t *testing.T) {
	t.Parallel()

	const (
		quick = time.Microsecond
		poll  = inbox.PollInterval
		slow  = 4 * inbox.SlowLook
		rest  = inbox.RestAfterLook * slow
	)

	var (
		search inbox.Search
		now    = time.Now()
		failed = context.DeadlineExceeded
	)

	for i, look := range []struct {
		after time.Duration // the last one ended
		whole bool          // it should be from the beginning
		took  time.Duration
		short bool // it found less than it was to
		err   error
	}{
		{after: 0, whole: true, took: quick},                            // the first
		{after: 0, whole: false, took: quick},                           // there is enough to do
		{after: poll - 2*quick, whole: false, took: quick},              // and has been for less than poll
		{after: 0, whole: true, took: quick},                            // now for as long
		{after: 0, whole: false, took: quick, short: true},              // nothing more there
		{after: 0, whole: true, took: quick, short: true},               // nor anywhere
		{after: 0, whole: true, took: quick, short: true},               // looks again, which costs nothing
		{after: 0, whole: true, took: slow, short: true},                // it does now
		{after: 0, whole: false, took: quick, short: true},              // it rests
		{after: rest - 3*quick, whole: false, took: quick, short: true}, // still
		{after: quick, whole: true, took: inbox.SlowLook, short: true},  // rested
		{after: 0, whole: true, took: slow, err: failed},                // one that fails
		{after: 0, whole: false, took: quick, err: failed},              // rests as well
		{after: rest, whole: true, took: 10 * inbox.LongestRest},        // slower than there is to be one
		{after: inbox.LongestRest - 2*quick, whole: false, took: quick}, // rests
		{after: quick, whole: true, took: quick},                        // and not for longer
	} {
		now = now.Add(look.after)

		if whole := search.Look(now, look.took, look.short, look.err); whole != look.whole {
			t.Fatalf("look %d: from the beginning is %t, want %t", i, whole, look.whole)
		}

		now = now.Add(look.took)
	}
}
