package proxies_test

import (
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

func requireEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()

	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()

	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()

	for deadline := time.Now().Add(patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s until %s", patience, what)
		}
	}
}
