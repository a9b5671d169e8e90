package conn

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// RequestTimeout bounds one attempt to get an answer. It is shorter than an election,
	// so that a new leader gets the next attempt soon.
	RequestTimeout = 2 * time.Second
	// RetryBudget bounds the retries of an append or a read. It exceeds the election of a
	// stream's leader, which takes 4 to 9 s.
	RetryBudget = 25 * time.Second
)

// Backoff waits longer and longer between attempts, with a random part so
// that writers that met do not meet again.
type Backoff struct{ next time.Duration }

const (
	backoffFirst = 2 * time.Millisecond
	backoffMost  = 500 * time.Millisecond
)

// NewBackoff begins with the shortest wait.
func NewBackoff() *Backoff { return &Backoff{backoffFirst} }

// Sleep waits, or returns the error of ctx when that ends first.
func (b *Backoff) Sleep(ctx context.Context) error {
	d := b.next/2 + rand.N(b.next)
	b.next = min(2*b.next, backoffMost)
	Pause(ctx, d)
	return ctx.Err()
}

// Pause waits, or less if ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
