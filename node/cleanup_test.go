package node

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// order is a workflow with two compensations that then waits in the way that its input
// names. It counts the failures that are left of a compensation.
type order struct {
	mu      sync.Mutex
	did     []string
	fails   int
	started chan struct{} // a function began to wait for the end of its context
	stopped chan struct{} // it returned
}

func (o *order) undo(ctx context.Context, name string) error {
	return flow.Defer(ctx, "undo "+name, func(context.Context) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.fails--; o.fails >= 0 {
			return errors.New("the bank is away")
		}
		o.did = append(o.did, name)
		return nil
	}, flow.DeferOptions{Effect: tool.Idempotent})
}

// taken returns the compensations that ran since the last call.
func (o *order) taken() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	did := strings.Join(o.did, " ")
	o.did = nil
	return did
}

func (o *order) registration() flow.Registration {
	return flow.Registration{Name: "order", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			if err := errors.Join(o.undo(ctx, "reserve"), o.undo(ctx, "charge")); err != nil {
				return s, err
			}
			var err error
			switch string(i.Input) {
			case `"await"`:
				_, err = flow.Await[string](ctx, "go on?", nil)
			case `"sleep"`:
				err = flow.Sleep(ctx, time.Hour)
			case `"do"`:
				_, err = flow.Do(ctx, "hang", func(ctx context.Context) (int, error) {
					o.started <- struct{}{}
					<-ctx.Done()
					o.stopped <- struct{}{}
					return 0, ctx.Err()
				}, tool.Idempotent)
			default:
				err = errors.New("out of stock")
			}
			return s, err
		})
	}}
}

// TestCleanup: after a failure, and after a cancel of a run that waits or works, the
// compensations of the run are executed in a run that is named after it.
func TestCleanup(t *testing.T) {
	t.Parallel()
	o := &order{started: make(chan struct{}, 1), stopped: make(chan struct{}, 1)}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{o.registration()},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	for _, in := range []string{"fail", "await", "sleep", "do"} {
		id := run.ID("order-" + in)
		task := messages.Task{ID: id, Input: []byte(`"` + in + `"`)}
		must.Get(c.Submit(t.Context(), "order", task))(t)
		want := run.Cancelled
		switch in {
		case "fail":
			want = run.Failed
		case "do":
			<-o.started
			must.Report(t, c.Runs.Cancel(t.Context(), id, messages.Control{Reason: "enough"}))
			<-o.stopped
		default:
			for {
				if i, err := c.Runs.Get(t.Context(), id); err == nil && i.State == run.Waiting {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			must.Report(t, c.Runs.Cancel(t.Context(), id, messages.Control{Reason: "enough"}))
		}
		if r := must.Get(c.Wait(t.Context(), id))(t); r.State != want {
			t.Errorf("%s: %+v", in, r)
		}
		r := must.Get(c.Wait(t.Context(), run.CleanupOf(id)))(t)
		if did := o.taken(); r.State != run.Succeeded || did != "charge reserve" {
			t.Errorf("%s: the cleanup run did %q and is %s: %s", in, did, r.State, r.Error)
		}
		if i := must.Get(c.Runs.Get(t.Context(), id))(t); i.Cleanup != run.CleanupOf(id) || i.CleanupState != run.Succeeded {
			t.Errorf("%s: the run shows cleanup %q, %s", in, i.Cleanup, i.CleanupState)
		}
	}
	o.mu.Lock()
	o.fails = 1
	o.mu.Unlock()
	must.Get(c.Submit(t.Context(), "order", messages.Task{ID: "bad"}))(t)
	r := must.Get(c.Wait(t.Context(), "bad-cleanup"))(t)
	if r.State != run.Failed || !strings.Contains(r.Error, "the bank is away") {
		t.Errorf("%+v", r)
	}
	if _, err := c.Runs.Resume(t.Context(), "bad", messages.Control{}); err == nil || !strings.Contains(err.Error(), "bad-cleanup") {
		t.Errorf("resume of a run that was cleaned up: %v", err)
	}
	if _, err := c.Runs.Rerun(t.Context(), "bad-cleanup", messages.Control{Repeat: true}); !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), "of run bad, once") {
		t.Errorf("rerun of a cleanup run: %v", err)
	}
	id := must.Get(c.Runs.Resume(t.Context(), "bad-cleanup", messages.Control{}))(t)
	if r := must.Get(c.Wait(t.Context(), id))(t); r.State != run.Succeeded || o.taken() != "charge reserve" {
		t.Errorf("the resumed cleanup: %+v", r)
	}
	if _, err := c.Submit(t.Context(), "order", messages.Task{ID: "mine-cleanup"}); err == nil {
		t.Error("a task got the id of a cleanup run")
	}
}
