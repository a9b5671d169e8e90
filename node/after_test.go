package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// after submits a run that begins after others, and ends at once or with an answer.
func after(t *testing.T, c *client.Client, task messages.Task, ask bool) {
	t.Helper()
	if task.Input = json.RawMessage(`{"customer":"acme"}`); ask {
		task.Input = json.RawMessage(`{"customer":"acme","ask":true}`)
	}
	must.Get(c.Submit(t.Context(), "bill", task))(t)
}

func ended(t *testing.T, c *client.Client, id run.ID, state run.State, code run.Code, text string) {
	t.Helper()
	if r := must.Get(c.Wait(t.Context(), id))(t); r.State != state || r.Code != code || !strings.Contains(r.Error, text) {
		t.Errorf("run %s is %s %s %q, want %s %s %q", id, r.State, r.Code, r.Error, state, code, text)
	}
}

// TestAfter: over NATS, a run begins once the runs that its task names have ended, fails with
// one that must succeed, and shows the runs that it waits for.
func TestAfter(t *testing.T) {
	t.Parallel()
	g := &gate{}
	c := g.node(t, nil)
	after(t, c, messages.Task{ID: "one"}, true)
	after(t, c, messages.Task{ID: "two"}, true)
	inState(t, c, "one", run.Waiting)
	inState(t, c, "two", run.Waiting)
	after(t, c, messages.Task{ID: "both", After: []run.ID{"one", "two"}}, false)
	after(t, c, messages.Task{ID: "any", After: []run.ID{"one"}, AfterAny: []run.ID{"two"}}, false)
	after(t, c, messages.Task{ID: "next", After: []run.ID{"any"}, Session: "chain"}, false)
	after(t, c, messages.Task{ID: "enough", After: []run.ID{"any"}, Session: "chain"}, false)
	for _, id := range []run.ID{"both", "any", "next", "enough"} {
		inState(t, c, id, run.Queued)
	}
	i := must.Get(c.Runs.Get(t.Context(), "both"))(t)
	if note := view.RunNote(&i, func(id run.ID) string { return string(id) }); note != "waits for run: one and 1 more" {
		t.Errorf("the list shows %q", note)
	}
	for { // until the relay has it
		l := must.Get(c.Runs.Live(t.Context(), "any"))(t)
		if len(l.Waits) == 2 {
			if got := fmt.Sprint(l.Waits[0], "; ", l.Waits[1]); got != "for run: one (waiting); for run: two, however it ends (waiting)" {
				t.Errorf("a run that waits for others shows %s", got)
			}
			break
		}
	}
	// It holds no session, and can be cancelled.
	after(t, c, messages.Task{ID: "beside", Session: "chain"}, false)
	ended(t, c, "beside", run.Succeeded, "", "")
	must.Report(t, c.Runs.Cancel(t.Context(), "enough", messages.Control{Reason: "enough"}))
	ended(t, c, "enough", run.Cancelled, run.CodeCancelled, "enough")

	must.Report(t, c.Runs.Cancel(t.Context(), "two", messages.Control{Reason: "no"}))
	ended(t, c, "both", run.Failed, run.CodeAfter, "run two, which must succeed before this run begins, was cancelled (cancelled)")
	if i := must.Get(c.Runs.Get(t.Context(), "next"))(t); i.State != run.Queued {
		t.Errorf("a run began before the others: %+v", i)
	}
	goOnWith(t, c, "one")
	ended(t, c, "any", run.Succeeded, "", "")
	ended(t, c, "next", run.Succeeded, "", "")

	// Runs that have ended.
	after(t, c, messages.Task{ID: "late", After: []run.ID{"one"}, AfterAny: []run.ID{"both"}}, false)
	ended(t, c, "late", run.Succeeded, "", "")
	after(t, c, messages.Task{ID: "too-late", After: []run.ID{"both"}}, false)
	ended(t, c, "too-late", run.Failed, run.CodeAfter, "run both, which must succeed before this run begins, has failed (after_failed)")

	// Runs that never are.
	must.Get(c.Submit(t.Context(), "bill", messages.Task{ID: "bad", Input: json.RawMessage(`{}`), Workspace: strings.Repeat("0", 63) + "1", ForkOf: "nothing"}))(t)
	must.Get(c.Wait(t.Context(), "bad"))(t)
	after(t, c, messages.Task{ID: "of-bad", After: []run.ID{"bad"}}, false)
	ended(t, c, "of-bad", run.Failed, run.CodeState, "the task of run bad was rejected (not_found) and never begins")
	after(t, c, messages.Task{ID: "of-none", AfterAny: []run.ID{"none"}}, false)
	ended(t, c, "of-none", run.Failed, run.CodeUnknownRun, "field after: none: unknown run; submit that run first, or leave it out")
	for _, bad := range []messages.Task{{ID: "x", After: []run.ID{"x"}}, {ID: "x", After: []run.ID{"one"}, AfterAny: []run.ID{"one"}}, {ID: "x", After: make([]run.ID, 17)}} {
		if _, err := c.Submit(t.Context(), "bill", bad); err == nil || !strings.Contains(err.Error(), "field after") {
			t.Errorf("a task after %q: %v", slices.Concat(bad.After, bad.AfterAny), err)
		}
	}
}

// TestAfterThenLimit: a run that waits for another one holds no grant of its limit.
func TestAfterThenLimit(t *testing.T) {
	t.Parallel()
	g := &gate{}
	c := g.node(t, &run.Limit{Key: []string{"input.customer"}, Concurrency: 1})
	bill(t, c, "first", "globex", true, 0)
	inState(t, c, "first", run.Waiting)
	after(t, c, messages.Task{ID: "waits", After: []run.ID{"first"}}, false)
	inState(t, c, "waits", run.Queued)
	bill(t, c, "holds", "acme", true, 0) // the grant of the key is free
	inState(t, c, "holds", run.Waiting)
	goOnWith(t, c, "first")
	ended(t, c, "first", run.Succeeded, "", "")
	for must.Get(c.Runs.Live(t.Context(), "waits"))(t).Limit == nil { // now it needs the grant
		if i := must.Get(c.Runs.Get(t.Context(), "waits"))(t); i.State != run.Queued {
			t.Fatalf("it began beside the holder: %+v", i)
		}
	}
	goOnWith(t, c, "holds")
	ended(t, c, "waits", run.Succeeded, "", "")
}

// TestManyAfter: a thousand runs begin after one, and a hundred after each other.
func TestManyAfter(t *testing.T) {
	t.Parallel()
	g := &gate{}
	c := g.node(t, nil)
	after(t, c, messages.Task{ID: "one"}, true)
	inState(t, c, "one", run.Waiting)
	const many, chain = 1000, 100
	id := func(kind string, n int) run.ID { return run.ID(fmt.Sprintf("%s-%d", kind, n)) }
	for n := range many {
		after(t, c, messages.Task{ID: id("wide", n), After: []run.ID{"one"}}, false)
	}
	before := run.ID("one")
	for n := range chain {
		after(t, c, messages.Task{ID: id("deep", n), After: []run.ID{before}}, false)
		before = id("deep", n)
	}
	inState(t, c, id("wide", many-1), run.Queued)
	inState(t, c, before, run.Queued)
	goOnWith(t, c, "one")
	ended(t, c, before, run.Succeeded, "", "")
	for n := range many {
		ended(t, c, id("wide", n), run.Succeeded, "", "")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var deep []run.ID
	begun := map[run.ID]bool{} // a run enters again after its wait
	for _, id := range g.order {
		if strings.HasPrefix(string(id), "deep-") && !begun[id] {
			deep = append(deep, id)
		}
		begun[id] = true
	}
	if len(begun) != many+chain || len(deep) != chain {
		t.Errorf("%d runs began, %d of the chain", len(begun), len(deep))
	}
	for n, got := range deep {
		if got != id("deep", n) {
			t.Fatalf("run %d of the chain to begin was %s", n, got)
		}
	}
}
