package conn

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Election is the retry budget of a start, which reads many streams. While servers elect
// the leader of a stream, or of JetStream, they do not answer for it or answer that it is
// not available. All requests of one start share one wait, which is logged once. An error
// that no election explains ends it, so that the operator sees at once that no server has
// JetStream, or that there are too few. Later requests, to servers that have answered
// before, have a budget each, see Retry. It is not safe for concurrent use.
type Election struct {
	Log   *slog.Logger // nil: silent
	What  string       // is asked for
	until time.Time
}

// Retry calls, at least once, until the error is not transient or RetryBudget is
// used up.
func Retry[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	return RetryWhile(ctx, &Election{}, IsTransient, call)
}

// RetryElection is Retry within a start, while servers elect a leader.
func RetryElection[T any](ctx context.Context, e *Election, call func(context.Context) (T, error)) (T, error) {
	return RetryWhile(ctx, e, IsLeaderless, call)
}

// RetryWhile is Retry for errors that worth accepts, within the budget of an election.
func RetryWhile[T any](ctx context.Context, e *Election, worth func(error) bool, call func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	v, err := call(ctx)
	if !worth(err) || ctx.Err() != nil {
		return v, err
	}
	if e.until.IsZero() {
		e.until = time.Now().Add(RetryBudget)
		if e.Log != nil {
			e.Log.Warn("the NATS servers do not answer for a stream: they may be electing its leader; waiting", "for", e.What, "at most", RetryBudget.String(), "err", err)
		}
	}
	within, cancel := context.WithDeadline(ctx, e.until)
	defer cancel()
	for wait := NewBackoff(); worth(err); {
		if wait.Sleep(within) != nil {
			return v, fmt.Errorf("no answer for %v: %w", time.Since(began).Round(time.Second), err)
		}
		v, err = call(within)
	}
	return v, err
}
