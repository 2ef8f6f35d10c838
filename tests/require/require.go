// Package require ends a test that does not get what it requires.
package require

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Patience is how long a test waits for what has to happen, on a machine that is busy.
const Patience = 30 * time.Second

// OK fails on an error.
func OK(t testing.TB, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

// ErrorIs fails unless errors.Is(err, target).
func ErrorIs(t testing.TB, err, target error) {
	t.Helper()

	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want one that is %v", err, target)
	}
}

// ErrorNames fails unless the error's text has all the words.
func ErrorNames(t testing.TB, err error, words ...string) {
	t.Helper()

	if err == nil {
		t.Fatalf("got no error, want one that names %q", words)
	}

	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not name %q", err, word)
		}
	}
}

// Equal fails unless both are deeply equal.
func Equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// Await returns what comes out of a channel, or the zero value once it is closed.
func Await[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()

	select {
	case v := <-ch:
		return v
	case <-time.After(Patience):
		t.Fatalf("waited %s for %s", Patience, what)
		panic("unreachable")
	}
}

// Eventually polls until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()

	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(Patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %s", Patience, what)
		}
	}
}
