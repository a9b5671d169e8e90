package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestCloseWithQuery: a long query, such as the replay of a workflow's code, does not
// keep a node from ending. It is answered with an error.
func TestCloseWithQuery(t *testing.T) {
	t.Parallel()
	var again atomic.Bool
	asked := make(chan struct{}, 16)
	n, err := Start(t.Context(), &Options{Store: t.TempDir(), NATS: NATS{Level: string(streams.Lazy), Port: -1}, Workflows: []flow.Registration{{
		Name: "slow", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				if again.Load() {
					asked <- struct{}{}
					<-ctx.Done()
					return s, ctx.Err()
				}
				return s, nil
			})
		},
	}}})
	must.Do(t, err)
	c, err := n.Client(t.Context())
	must.Do(t, err)
	defer c.Close()
	r, err := c.Do(t.Context(), "slow", messages.Task{ID: "one"}, nil)
	if err != nil || r.State != run.Succeeded {
		t.Fatalf("%+v, %v", r, err)
	}
	again.Store(true)
	told := make(chan error, 1)
	go func() {
		_, err := c.Runs.Replay(t.Context(), "one")
		told <- err
	}()
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("the code was not asked to run again")
	}
	began := time.Now()
	must.Report(t, n.Close())
	if took := time.Since(began); took > 25*time.Second { // else the 30 s that a query may take
		t.Errorf("the node took %v to end", took)
	}
	if err := <-told; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who asked is told %v", err)
	}
}
