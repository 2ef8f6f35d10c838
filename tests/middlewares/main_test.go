// Package middlewares_test shows, for each of Watermill's middlewares, where it goes: outside of the inbox (added
// before it) or inside, and what becomes of an event when it is put in the wrong place. Every test is a real router on
// the in-memory Pub/Sub over PostgreSQL. Tests whose names begin with "danger:" pin down the damage that an order does.
package middlewares_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
