//go:build !stress

package pubsub_test

// short makes the suite send fewer messages.
const short = true
