package api

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/run"
)

// pullWhile takes tasks for a while, and returns how often one was
// given to a log.
func pullWhile(t *testing.T, c *Conn, d time.Duration, in dispatch.Intake) (taken int) {
	t.Helper()
	accept := in.Accept
	in.Accept = func(ctx context.Context, task journal.Task) (journal.Answer, error) {
		taken++
		if accept == nil {
			return journal.AnswerCommitted, nil
		}
		return accept(ctx, task)
	}
	streamstest.Lend(t, c.Conn.NC)
	takeAll(t, c)
	synctest.Wait()
	if in.Offers == nil {
		in.Offers = func(string) (string, bool) { return "1", true }
	}
	if in.Enqueue == nil {
		in.Enqueue = func(ctx context.Context, task journal.Task, _ *journal.CancelRequested) error {
			_, err := in.Accept(ctx, task)
			return err
		}
	}
	stop := natstest.Background(t, func(ctx context.Context) error { return c.Dispatch.PullTasks(ctx, &in) })
	time.Sleep(d)
	synctest.Wait()
	stop()
	return taken
}

// takeAll is a node that accepts every dispatched run, and executes none. It returns a
// function that counts the runs.
func takeAll(t testing.TB, c *Conn) (taken func() int) {
	t.Helper()
	var mu sync.Mutex
	runs := map[run.ID]int{}
	stop := natstest.Background(t, func(ctx context.Context) error {
		return c.Dispatch.ServeRuns(ctx, &dispatch.Host{
			Incarnation: "taker", Pool: dispatch.DefaultPool, Free: func() int { return 1000 }, Freed: make(chan struct{}),
			Take: func(_ context.Context, r journal.Task) (journal.Answer, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[r.ID]++
				return journal.AnswerCommitted, nil
			},
		})
	})
	t.Cleanup(stop)
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(runs)
	}
}

// TakeAll is takeAll for tests outside of the package.
func (c *Conn) TakeAll(t testing.TB) (taken func() int) { return takeAll(t, c) }
