package natstest

import (
	"context"
	"testing"
)

// Background does f until the test calls stop, which waits for it. An error fails
// the test.
func Background(tb testing.TB, f func(ctx context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() {
		tb.Helper()
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	}
}
