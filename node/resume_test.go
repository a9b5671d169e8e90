package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// pipeline is a workflow of six steps, one of which has branches. The step named fails
// fails in the first runs.
type pipeline struct {
	mu    sync.Mutex
	did   []string
	fails map[string]int
}

func (p *pipeline) step(ctx context.Context, s session.Session, name string) (session.Session, error) {
	text, err := flow.Do(ctx, name, func(context.Context) (string, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.did = append(p.did, name)
		if p.fails[name]--; p.fails[name] >= 0 {
			return "", fmt.Errorf("%s is away", name)
		}
		return "did " + name, nil
	}, tool.Idempotent, tool.Retry{Times: 1})
	if err != nil {
		return s, err
	}
	return s.With(session.AssistantText(text)), nil
}

func (p *pipeline) registration() flow.Registration {
	return flow.Registration{Name: "pipeline", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (_ session.Session, err error) {
			for _, name := range []string{"plan", "fetch"} {
				if s, err = p.step(ctx, s, name); err != nil {
					return s, err
				}
			}
			var bs []flow.Branch
			for _, name := range []string{"left", "right"} {
				bs = append(bs, flow.Branch{Name: name, Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					return p.step(ctx, s, name)
				})})
			}
			j, err := flow.FanOut(ctx, s, bs, nil)
			if err != nil {
				return s, err
			}
			if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
				return s, err
			}
			for _, name := range []string{"build", "publish"} {
				if s, err = p.step(ctx, s, name); err != nil {
					return s, err
				}
			}
			return s, nil
		})
	}}
}

// take returns the steps that were executed since the last call.
func (p *pipeline) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	did := p.did
	p.did = nil
	return did
}

// TestResume continues a run over the network at the step that failed, and at one before
// its branches.
func TestResume(t *testing.T) {
	t.Parallel()
	p := &pipeline{fails: map[string]int{"publish": 2}}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{p.registration()},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	first := must.Get(c.Do(t.Context(), "pipeline", messages.Task{ID: "one"}, nil))(t)
	if first.State != run.Failed {
		t.Fatalf("%+v", first)
	}
	p.take()
	resumed := func(of run.ID, d messages.Control, state run.State, did ...string) {
		t.Helper()
		id := must.Get(c.Runs.Resume(t.Context(), of, d))(t)
		r := must.Get(c.Wait(t.Context(), id))(t)
		steps := p.take()
		slices.Sort(steps)
		if r.State != state || !slices.Equal(steps, did) {
			t.Errorf("resumed %s at %q as %s: %s, and did %v; %s", of, d.Step, id, r.State, steps, r.Error)
		}
		if again := must.Get(c.Runs.Resume(t.Context(), of, d))(t); again != id {
			t.Errorf("the same request again made run %s", again)
		}
		info := must.Get(c.Runs.Get(t.Context(), id))(t)
		if info.By == "" || r.Session == first.Session {
			t.Errorf("%+v", info)
		}
	}
	resumed("one", messages.Control{ID: "a"}, run.Failed, "publish")
	resumed("one-r1", messages.Control{ID: "b"}, run.Succeeded, "publish")
	if _, err := c.Runs.Resume(t.Context(), "one", messages.Control{ID: "c"}); !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), "continues as run one-r1") {
		t.Errorf("a second continuation of one run: %v", err)
	}
	p.fails["publish"] = 1
	if r := must.Get(c.Do(t.Context(), "pipeline", messages.Task{ID: "two"}, nil))(t); r.State != run.Failed {
		t.Fatalf("%+v", r)
	}
	p.take()
	resumed("two", messages.Control{Step: "2", ID: "d"}, run.Succeeded, "build", "left", "publish", "right")
	if _, err := c.Runs.Resume(t.Context(), "one-r2", messages.Control{}); !errors.Is(err, run.ErrState) {
		t.Errorf("of a run that succeeded: %v", err)
	}
	if _, err := c.Runs.Resume(t.Context(), "nobody", messages.Control{}); !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("of no run: %v", err)
	}
	if r := must.Get(c.Runs.Result(t.Context(), "one"))(t); r.State != run.Failed {
		t.Errorf("the first run is %s", r.State)
	}
}

// TestResumeStarter: a run that failed because a run which it started did is resumed at the
// start, and starts another one.
func TestResumeStarter(t *testing.T) {
	t.Parallel()
	p := &pipeline{fails: map[string]int{"pay": 1}}
	order := flow.Registration{Name: "order", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := p.step(ctx, s, "reserve")
			if err != nil {
				return s, err
			}
			paid, err := flow.Start(ctx, flow.Task{Workflow: "pay"})
			if err != nil {
				return s, err
			}
			end, err := paid.Result(ctx, 0)
			return s, errors.Join(err, end.Err)
		})
	}}
	pay := flow.Registration{Name: "pay", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) { return p.step(ctx, s, "pay") })
	}}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{order, pay},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	if r := must.Get(c.Do(t.Context(), "order", messages.Task{ID: "one"}, nil))(t); r.State != run.Failed {
		t.Fatalf("%+v", r)
	}
	id := must.Get(c.Runs.Resume(t.Context(), "one", messages.Control{}))(t)
	r := must.Get(c.Wait(t.Context(), id))(t)
	if did := p.take(); r.State != run.Succeeded || !slices.Equal(did, []string{"reserve", "pay", "pay"}) {
		t.Errorf("%s: %s; it did %v", r.State, r.Error, did)
	}
}

// TestHold: a task that holds waits at the step that failed, over the network, and goes on
// there after a decision. Its branches hold, too.
func TestHold(t *testing.T) {
	t.Parallel()
	p := &pipeline{fails: map[string]int{"publish": 1, "left": 1}}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{p.registration()},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	if _, err := c.Submit(t.Context(), "pipeline", messages.Task{ID: "bad", OnFailure: "wait"}); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("on_failure: wait: %v", err)
	}
	must.Get(c.Submit(t.Context(), "pipeline", messages.Task{ID: "one", OnFailure: run.Hold}))(t)
	for decided := 0; ; {
		for _, r := range must.Get(c.Runs.List(t.Context(), &client.RunsOptions{States: []run.State{run.NeedsReview}}))(t) {
			must.Report(t, c.Runs.Resolve(t.Context(), r.Run, messages.Control{Decision: run.Again, Reason: "looked"}))
			decided++
		}
		i, err := c.Runs.Get(t.Context(), "one")
		if err != nil && !errors.Is(err, run.ErrUnknownRun) { // no node has taken it yet
			t.Fatal(err)
		}
		if i.State.Terminal() {
			if i.State != run.Succeeded || decided != 2 {
				t.Errorf("%s after %d decisions: %s", i.State, decided, i.Reason)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	did := p.take()
	slices.Sort(did)
	if want := []string{"build", "fetch", "left", "left", "plan", "publish", "publish", "right"}; !slices.Equal(did, want) {
		t.Errorf("did %v, want %v", did, want)
	}
}

// TestRerunRepeats: a run with a call that must not happen twice is done again only if the
// request allows that.
func TestRerunRepeats(t *testing.T) {
	t.Parallel()
	var paid atomic.Int64
	pays := flow.Registration{Name: "pays", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "pay", func(context.Context) (int64, error) { return paid.Add(1), nil }, tool.NonIdempotent)
			return s, err
		})
	}}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{pays},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	c := must.Get(n.Client(t.Context()))(t)
	defer c.Close()
	ctx := t.Context()
	must.Get(c.Do(ctx, "pays", messages.Task{ID: "one"}, nil))(t)
	_, err := c.Runs.Rerun(ctx, "one", messages.Control{})
	if !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), `"pay" at step 0, which must not happen twice`) {
		t.Errorf("a rerun of a run that paid: %v", err)
	}
	id := must.Get(c.Runs.Rerun(ctx, "one", messages.Control{Repeat: true}))(t)
	if r, err := c.Wait(ctx, id); err != nil || r.State != run.Succeeded || paid.Load() != 2 {
		t.Errorf("the rerun is %+v, %v, after %d payments", r, err, paid.Load())
	}
}
