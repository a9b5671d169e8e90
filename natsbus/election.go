package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// election is the patience of a start, which looks at many streams: while servers
// choose who leads one of them, or all of JetStream, nobody answers for it or
// somebody says that it is not available. All that is asked within a start shares
// one wait. The zero election is ready; it is not safe for concurrent use.
type election struct{ until time.Time }

// during calls until the error is not one that an election explains, or until
// patience is over.
func during[T any](ctx context.Context, c *Conn, e *election, what string, call func(context.Context) (T, error)) (T, error) {
	began := time.Now()
	for wait := newBackoff(); ; {
		v, err := call(ctx)
		switch {
		case !electing(err), ctx.Err() != nil:
			return v, err
		case e.until.IsZero():
			e.until = began.Add(patience)
			c.o.Logger.Warn("the NATS servers do not answer for a stream: they may be electing its leader; waiting", "for", what, "at most", patience.String(), "err", err)
		}
		if !time.Now().Before(e.until) {
			return v, fmt.Errorf("not within %v: %w", patience, err)
		}
		if wait.sleep(ctx) != nil {
			return v, err
		}
	}
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
	if errors.Is(err, errLeaderless) {
		return true
	}
	if code := apiCode(err); code != 0 {
		return code == codeNotAvailable || code == codeNotLeader
	}
	return passing(err) && !errors.Is(err, nats.ErrNoResponders)
}

// findStream is lookStream with patience.
func (c *Conn) findStream(ctx context.Context, e *election, name string) (*jetstream.StreamInfo, error) {
	return during(ctx, c, e, "stream "+name, func(ctx context.Context) (*jetstream.StreamInfo, error) { return c.lookStream(ctx, name) })
}
