package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// election is the retry budget of a start, which looks at many streams. While
// servers elect the leader of a stream, or of JetStream, they do not answer for it
// or answer that it is not available. All requests of one start share one wait,
// which is logged once. An error that no election explains ends it, so that the
// operator sees at once that no server has JetStream, or that there are too few.
// Later requests, to servers that have answered before, have a budget each, see
// retry. It is not safe for concurrent use.
type election struct {
	log   *slog.Logger // nil: silent
	what  string       // is asked for
	until time.Time
	conn  uint64 // the connection, if this is kept from one search to the next
	// For a stream or consumer that may be lost, see search: since when its witness
	// has had a leader while no server answered for it, and whether that is long
	// enough.
	led  time.Time
	lost bool
}

// retry calls, at least once, until the error is not transient or retryBudget is
// used up.
func retry[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	return retryWhile(ctx, &election{}, isTransient, call)
}

// retryElection is retry within a start, while servers elect a leader.
func retryElection[T any](ctx context.Context, e *election, call func(context.Context) (T, error)) (T, error) {
	return retryWhile(ctx, e, isLeaderless, call)
}

func retryWhile[T any](ctx context.Context, e *election, worth func(error) bool, call func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	v, err := call(ctx)
	if !worth(err) || ctx.Err() != nil {
		return v, err
	}
	if e.until.IsZero() {
		e.until = time.Now().Add(retryBudget)
		if e.log != nil {
			e.log.Warn("the NATS servers do not answer for a stream: they may be electing its leader; waiting", "for", e.what, "at most", retryBudget.String(), "err", err)
		}
	}
	within, cancel := context.WithDeadline(ctx, e.until)
	defer cancel()
	for wait := newBackoff(); worth(err); {
		if wait.sleep(within) != nil {
			return v, fmt.Errorf("no answer for %v: %w", time.Since(began).Round(time.Second), err)
		}
		v, err = call(within)
	}
	return v, err
}

// The codes of servers that have no leader, or follow one that is being replaced.
const (
	codeNotAvailable = 10008
	codeNotLeader    = 10009
)

// errLeaderless is returned for a stream that none of its servers leads: what
// the cluster knows of it can be asked all the same.
var errLeaderless = errors.New("natsbus: the stream has no leader")

// isLeaderless reports whether an error is one of servers that choose a leader: some
// say so, others say nothing. No server listens where JetStream is off.
func isLeaderless(err error) bool {
	if code := apiCode(err); code != 0 {
		return code == codeNotAvailable || code == codeNotLeader
	}
	return isTransient(err) && !errors.Is(err, nats.ErrNoResponders)
}
