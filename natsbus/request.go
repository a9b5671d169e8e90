package natsbus

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// requestTimeout bounds one attempt to get an answer. It is shorter than
	// an election, so that a new leader is asked soon after.
	requestTimeout = 2 * time.Second
	// retryBudget is how long an append or a read goes on trying: longer than a
	// stream takes to elect a new leader, which is 4 to 9 s.
	retryBudget = 25 * time.Second
)

// errCut is returned for a request whose connection was lost on the way.
var errCut = errors.New("natsbus: connection lost")

// request sends one request and waits for its answer, which does not come any
// more when the connection is lost.
func (c *Conn) request(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	attempt, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a := c.refusals.enterLinked(m.Subject, cancel)
	reply, err := c.nc.RequestMsgWithContext(attempt, m)
	return reply, c.refusals.leave(a, err)
}

// isTransient reports whether an error is one of a connection or a leader that is
// being replaced.
func isTransient(err error) bool {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return e.Code >= 500
	}
	for _, target := range []error{errCut, errLeaderless, errStaleLeader, errBehind, context.DeadlineExceeded, nats.ErrNoResponders, nats.ErrReconnectBufExceeded, nats.ErrDisconnected, nats.ErrTimeout} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// backoff waits longer and longer between attempts, with a random part so
// that writers that met do not meet again.
type backoff struct{ next time.Duration }

const (
	backoffFirst = 2 * time.Millisecond
	backoffMost  = 500 * time.Millisecond
)

func newBackoff() *backoff { return &backoff{backoffFirst} }

// sleep waits, or returns the error of ctx when that ends first.
func (b *backoff) sleep(ctx context.Context) error {
	d := b.next/2 + rand.N(b.next)
	b.next = min(2*b.next, backoffMost)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
