// Package cqrs_test shows the inbox under Watermill's CQRS component: handlers find the transaction in the context that
// they are given, a handler or a group of them is a consumer, and the options that hide errors from the inbox are shown
// for what they do. Every test is a real router on the in-memory Pub/Sub over PostgreSQL. Tests whose names begin with
// "danger:" pin down the damage that an option does.
package cqrs_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
