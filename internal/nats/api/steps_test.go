package api

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// pullWhile takes tasks for a while, and returns how often one was
// given to a log.
func pullWhile(t *testing.T, c *Conn, d time.Duration, in dispatch.Intake) (taken int) {
	t.Helper()
	accept := in.Accept
	in.Accept = func(ctx context.Context, task journal.Task) error {
		taken++
		if accept == nil {
			return nil
		}
		return accept(ctx, task)
	}
	lendAll(c, t)
	takeAll(c, t)
	synctest.Wait()
	if in.Offers == nil {
		in.Offers = func(string) (string, bool) { return "1", true }
	}
	stop := natstest.Background(t, func(ctx context.Context) error { return c.PullTasks(ctx, &in) })
	time.Sleep(d)
	synctest.Wait()
	stop()
	return taken
}

// lettersAndTasks counts what lies in DLQ, and waiting in TASKS.
func lettersAndTasks(t *testing.T, c *Conn) (letters, tasks uint64) {
	t.Helper()
	for stream, n := range map[string]*uint64{streams.StreamDLQ: &letters, streams.StreamTasks: &tasks} {
		have, err := c.Subjects(t.Context(), stream, ">")
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range have {
			*n += k
		}
	}
	return letters, tasks
}

// toldOf is how a run ended, "" while it has no result.
func toldOf(t *testing.T, c *Conn, tenant session.Tenant, id run.ID) run.State {
	t.Helper()
	m, err := c.Last(t.Context(), streams.StreamResult, messages.RunSubject(tenant, id, messages.OnResult))
	if err != nil {
		return ""
	}
	r, err := messages.DecodeResult(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	return r.State
}

// takeAll is a node that takes every run that is dispatched, and executes none. It
// returns how many runs that were.
func takeAll(c *Conn, t testing.TB) (taken func() int) {
	t.Helper()
	var mu sync.Mutex
	runs := map[run.ID]int{}
	stop := natstest.Background(t, func(ctx context.Context) error {
		return c.ServeRuns(ctx, &dispatch.Host{
			Incarnation: "taker", Pool: dispatch.DefaultPool, Free: func() int { return 1000 }, Freed: make(chan struct{}),
			Take: func(_ context.Context, r journal.Task) (dispatch.Answer, error) {
				mu.Lock()
				defer mu.Unlock()
				runs[r.ID]++
				return dispatch.Committed, nil
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

// lendAll answers questions for credit as a relay does of whose runs none wait.
func lendAll(c *Conn, t testing.TB) {
	t.Helper()
	sub, err := c.NC.Subscribe(messages.NodePrefix+"credit.>", func(m *nats.Msg) { _ = m.Respond([]byte(`{"n":16}`)) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
}

// shortly is for a request that the server refuses by not answering it.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// TakeAll is takeAll for tests outside of the package.
func (c *Conn) TakeAll(t testing.TB) (taken func() int) { return takeAll(c, t) }
