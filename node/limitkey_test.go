package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// gate is a workflow that notes how many of its runs are between its start and an answer.
type gate struct {
	mu     sync.Mutex
	within map[string]int // by customer
	most   map[string]int
	order  []run.ID
}

func (g *gate) enter(customer string, id run.ID, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.within[customer] += n
	g.most[customer] = max(g.most[customer], g.within[customer])
	if n > 0 {
		g.order = append(g.order, id)
	}
}

func (g *gate) offer(l *run.Limit) flow.Registration {
	return flow.Registration{Name: "bill", Revision: "1", Limit: l, New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			var in struct {
				Customer string `json:"customer"`
				Ask      bool   `json:"ask"`
			}
			if err := json.Unmarshal(i.Input, &in); err != nil {
				return s, err
			}
			if in.Ask {
				_, err := flow.Await[string](ctx, "go on?", nil)
				return s, err
			}
			g.enter(in.Customer, i.Run, 1)
			defer g.enter(in.Customer, i.Run, -1)
			return s, flow.Sleep(ctx, time.Millisecond)
		})
	}}
}

func (g *gate) node(t *testing.T, l *run.Limit) *client.Client {
	t.Helper()
	g.within, g.most = map[string]int{}, map[string]int{}
	n := must.Get(Start(t.Context(), &Options{
		Store: t.TempDir(), NATS: NATS{Level: "lazy", Port: -1}, Fleet: Fleet{Pool: "default"}, Workflows: []flow.Registration{g.offer(l)},
	}))(t)
	t.Cleanup(func() { must.Report(t, n.Close()) })
	c := must.Get(n.Client(t.Context()))(t)
	t.Cleanup(func() { must.Report(t, c.Close()) })
	return c
}

// bill submits a run for a customer, which asks or ends at once.
func bill(t *testing.T, c *client.Client, id run.ID, customer string, ask bool, priority int64) {
	t.Helper()
	in := must.Get(json.Marshal(map[string]any{"customer": customer, "ask": ask}))(t)
	must.Get(c.Submit(t.Context(), "bill", messages.Task{ID: id, Input: in, Priority: priority}))(t)
}

func goOnWith(t *testing.T, c *client.Client, id run.ID) {
	t.Helper()
	i := inState(t, c, id, run.Waiting)
	must.Report(t, c.Questions.Answer(t.Context(), id, messages.Control{Step: i.Waits[0].Step, Value: json.RawMessage(`"yes"`)}))
}

// TestLimitByKey: a run holds the grant of its key while it waits, other keys go on, the
// next one is the first of the highest priority, and the end of a run that never began
// takes it out of the queue.
func TestLimitByKey(t *testing.T) {
	t.Parallel()
	g := &gate{}
	c := g.node(t, &run.Limit{Key: []string{"input.customer"}, Concurrency: 1})
	bill(t, c, "holder", "acme", true, 0)
	inState(t, c, "holder", run.Waiting)
	for i, priority := range []int64{0, 0, 5, -5} {
		bill(t, c, run.ID(fmt.Sprintf("next-%d", i)), "acme", false, priority)
		inState(t, c, run.ID(fmt.Sprintf("next-%d", i)), run.Queued)
	}
	for { // until all requests are there
		l := must.Get(c.Runs.Live(t.Context(), "next-3"))(t).Limit
		if l != nil && l.Ahead == 3 {
			if l.Limit != "1 at a time for acme" || !slices.Equal(l.Holders, []run.ID{"holder"}) || l.Before[0] != "next-2" {
				t.Errorf("the last run waits for %+v", l)
			}
			break
		}
		time.Sleep(time.Millisecond)
	}
	bill(t, c, "other", "globex", false, 0)
	if r := must.Get(c.Wait(t.Context(), "other"))(t); r.State != run.Succeeded {
		t.Errorf("a run of another key: %+v", r)
	}
	must.Report(t, c.Runs.Cancel(t.Context(), "next-0", messages.Control{Reason: "enough"}))
	must.Get(c.Wait(t.Context(), "next-0"))(t)
	if i := must.Get(c.Runs.Get(t.Context(), "next-2"))(t); i.State != run.Queued {
		t.Errorf("a run began while another one holds its key: %+v", i)
	}
	goOnWith(t, c, "holder")
	for _, id := range []run.ID{"next-1", "next-2", "next-3"} {
		if r := must.Get(c.Wait(t.Context(), id))(t); r.State != run.Succeeded {
			t.Errorf("%s: %+v", id, r)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := fmt.Sprint(slices.Compact(g.order)); got != "[other next-2 next-1 next-3]" || g.most["acme"] != 1 {
		t.Errorf("the runs began as %s, at most %d at a time", got, g.most["acme"])
	}
}

// TestLimitRejects: with Reject a run that cannot begin fails at once, and names the
// holder; a task whose key cannot be read is rejected; one without the field has the key "".
func TestLimitRejects(t *testing.T) {
	t.Parallel()
	g := &gate{}
	c := g.node(t, &run.Limit{Key: []string{"input.customer"}, Concurrency: 1, Reject: true})
	bill(t, c, "holder", "acme", true, 0)
	inState(t, c, "holder", run.Waiting)
	bill(t, c, "second", "acme", false, 0)
	r := must.Get(c.Wait(t.Context(), "second"))(t)
	if r.State != run.Failed || r.Code != run.CodeBusy || !strings.Contains(r.Error, "1 at a time for acme, and run holder has not ended") {
		t.Errorf("a run beyond the limit: %+v", r)
	}
	goOnWith(t, c, "holder")
	must.Get(c.Wait(t.Context(), "holder"))(t)
	r = must.Get(c.Do(t.Context(), "bill", messages.Task{ID: "bad", Input: json.RawMessage(`{"customer":{"id":7}}`)}, nil))(t)
	if r.Code != run.CodeMalformed || !strings.Contains(r.Error, "input.customer is a part of the workflow's limit: it is an object") {
		t.Errorf("a key that is an object: %+v", r)
	}
	if r := must.Get(c.Do(t.Context(), "bill", messages.Task{ID: "none", Input: json.RawMessage(`{}`)}, nil))(t); r.State != run.Succeeded {
		t.Errorf("a task without the field: %+v", r)
	}
}

// limited has a workflow, of one run at a time per customer, that notes its begin and end.
func limited() []flow.Registration {
	return []flow.Registration{{Name: "bill", Revision: "1", Limit: &run.Limit{Key: []string{"tag.customer"}, Concurrency: 1}, New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			i, _ := flow.RunInfo(ctx)
			for _, what := range []string{"begin", "end"} {
				if _, err := flow.Do(ctx, what, func(context.Context) (bool, error) { return true, note(what + " " + string(i.Run)) }, tool.Idempotent); err != nil {
					return s, err
				}
				if err := flow.Sleep(ctx, 5*time.Millisecond); err != nil {
					return s, err
				}
			}
			return s, nil
		})
	}}}
}
