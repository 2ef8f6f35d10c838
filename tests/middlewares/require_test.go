package middlewares_test

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

const patience = 30 * time.Second

func requireOK(t testing.TB, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}

func requireErrorIs(t testing.TB, err, target error) {
	t.Helper()

	if !errors.Is(err, target) {
		t.Fatalf("got error %v, want one that is %v", err, target)
	}
}

func requireEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// await returns what comes out of a channel, or the zero value once it is closed.
func await[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()

	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
		panic("unreachable")
	}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()

	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %s", patience, what)
		}
	}
}
