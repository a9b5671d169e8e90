package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// election is the patience of a start, which looks at many streams: while servers
// choose who leads one of them, or all of JetStream, nobody answers for it or
// somebody says that it is not available. All that is asked within a start shares
// one wait, which is logged once, and what an election does not explain ends it:
// somebody is to see that no server has JetStream, or that there are too few. Who
// asks later, of servers that did answer before, is patient by himself. It is not
// safe for concurrent use.
type election struct {
	log   *slog.Logger // nil: silent
	what  string       // is asked for
	until time.Time
	conn  uint64 // the connection, if this is kept from one search to the next
	// For what may be lost, see seek: since when its witness was seen to be led
	// while nobody answered for it, and whether that was long enough.
	led  time.Time
	lost bool
}

// patiently calls, at least once, until the error is not one that may pass or
// patience is over.
func patiently[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	return sitOut(ctx, &election{}, passing, call)
}

// throughElection does that within a start, as long as servers elect.
func throughElection[T any](ctx context.Context, e *election, call func(context.Context) (T, error)) (T, error) {
	return sitOut(ctx, e, electing, call)
}

func sitOut[T any](ctx context.Context, e *election, worth func(error) bool, call func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	v, err := call(ctx)
	if !worth(err) || ctx.Err() != nil {
		return v, err
	}
	if e.until.IsZero() {
		e.until = time.Now().Add(patience)
		if e.log != nil {
			e.log.Warn("the NATS servers do not answer for a stream: they may be electing its leader; waiting", "for", e.what, "at most", patience.String(), "err", err)
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

// electing reports whether an error is one of servers that choose a leader: some
// say so, others say nothing. Nobody listens where JetStream is off.
func electing(err error) bool {
	if code := apiCode(err); code != 0 {
		return code == codeNotAvailable || code == codeNotLeader
	}
	return passing(err) && !errors.Is(err, nats.ErrNoResponders)
}
