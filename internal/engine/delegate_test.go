package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// calls is a model that calls a tool with an input until it has a result, which it
// repeats.
func calls(name, input string) model {
	return func(r *llm.Request) *llm.Response {
		if last := r.Messages[len(r.Messages)-1]; last.Role == llm.Tool {
			return &llm.Response{Text: "got " + last.Text, Finish: llm.FinishStop}
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "c", Name: name, Args: `{"input":"` + input + `"}`}}}
	}
}

// lead is an agent with one tool, which is a workflow.
func lead(w flow.Workflow) *flow.Agent {
	return &flow.Agent{Name: "lead", Tools: []tool.Tool{flow.WorkflowTool("worker", "Works.", w)}}
}

// run1 runs a workflow as run "r" in a world, with all work that follows from it.
func (w *world) run1(t *testing.T, m llm.Models, f flow.Workflow, change func(*inprocess.Runtime, *journal.Task)) (*inprocess.Runtime, *engine.Execution, run.State, error) {
	t.Helper()
	values := journal.NewValues(&w.Memory)
	d := &inprocess.Driver{}
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Models: m, Store: journal.NewStore(&w.Memory, &journal.StoreOptions{Values: values, OnCommit: d.Committed})}}
	task := journal.Task{ID: "r", Workflow: "w", Session: home}
	if change != nil {
		change(rt, &task)
		d.Answer = rt.Answer
	}
	begin := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return f.Forward(ctx, s.With(session.UserText("go")))
	})
	ex, state, err := d.Run(t.Context(), &rt.Runtime, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return begin }}, task)
	return rt, ex, state, err
}

// steps returns the records of steps in a log.
func (w *world) steps(t *testing.T, k session.Key) (all []journal.StepCompleted) {
	t.Helper()
	for e, err := range w.Read(t.Context(), k, commitlog.Position{}) {
		check(t, err)
		for _, ev := range e.Commit.Events {
			if ev.Kind == journal.KindStepCompleted {
				all = append(all, must(journal.Decode[journal.StepCompleted](ev)))
			}
		}
	}
	return all
}

// branch returns the only session beside the home, and the events of its log.
func (w *world) branch(t *testing.T) (k session.Key, events []session.Event) {
	t.Helper()
	for _, one := range w.Keys() {
		if one == home {
			continue
		}
		if k.ID != "" {
			t.Fatalf("there are sessions %s and %s", k.ID, one.ID)
		}
		k = one
		for e, err := range w.Read(t.Context(), k, commitlog.Position{}) {
			check(t, err)
			events = append(events, e.Commit.Events...)
		}
	}
	return k, events
}

// TestWorkflowToolIsARun: the work of a call is a run in a session that begins with the
// model's input, and the call's step names it.
func TestWorkflowToolIsARun(t *testing.T) {
	var w world
	var inside flow.Info
	worker := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		inside, _ = flow.RunInfo(ctx)
		s, _, err := flow.CallTool(ctx, s, words, wordsIn{s.Text() + "one two"})
		return s.With(session.AssistantText(fmt.Sprint("after ", texts(s)))), err
	})
	rt, ex, state, err := w.run1(t, calls("worker", "count"), lead(worker), nil)
	if err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	if got, want := texts(ex.Result())[2:], []string{`"after [count 2]"`, `got "after [count 2]"`}; !slices.Equal(got, want) {
		t.Errorf("the rows are %q, want %q", got, want)
	}
	k, events := w.branch(t)
	if inside.Session != k || inside.Run == "r" || inside.Path != "0.calls.worker-0.0" {
		t.Errorf("the work says that it is at %+v, its session is %s", inside, k.ID)
	}
	o := must(session.DecodeOpening(events[slices.IndexFunc(events, func(e session.Event) bool { return e.Kind == session.KindOpened })]))
	if o.Kind != session.OpenCall || len(o.Parents) != 1 || o.Parents[0].ID != home.ID || o.Step != "0.calls.worker-0" {
		t.Errorf("its session was opened as %+v", o)
	}
	steps := 0
	for _, s := range w.steps(t, home) {
		if s.Kind != journal.StepTool {
			continue
		}
		if steps++; s.Path != "0.0" || s.Name != "worker" || len(s.Links) != 1 || s.Links[0].ID != k.ID {
			t.Errorf("the call's step is %+v", s)
		}
	}
	if steps != 1 {
		t.Errorf("there are %d steps of calls", steps)
	}
	again := flow.Registration{Name: "w", Revision: "2", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return lead(worker).Forward(ctx, s.With(session.UserText("go")))
		})
	}}
	if r := must(engine.Replay(t.Context(), &rt.Runtime, again, home, "r")); !r.Matches() || len(r.Branches) != 1 {
		t.Errorf("the replay says %q, of %d branches", r.Differs, len(r.Branches))
	}
}

// TestEndlessWorkflowTools: agents that call each other without end are rejected at a
// depth; the call there fails, and its caller continues.
func TestEndlessWorkflowTools(t *testing.T) {
	var w world
	asked, refused := 0, 0
	endless := &flow.Agent{Name: "again"}
	endless.Tools = []tool.Tool{flow.WorkflowTool("worker", "Works.", endless)}
	m := model(func(r *llm.Request) *llm.Response {
		asked++
		if last := r.Messages[len(r.Messages)-1]; last.Role == llm.Tool {
			if strings.Contains(last.Text, "at most 32 may") {
				refused++
			}
			return &llm.Response{Text: "fine", Finish: llm.FinishStop}
		}
		return calls("worker", "more")(r)
	})
	_, ex, state, err := w.run1(t, m, endless, nil)
	if err != nil || state != run.Succeeded || ex.Result().Text() != "fine" {
		t.Errorf("the run is %s and says %q: %v", state, ex.Result().Text(), err)
	}
	if asked != 2*(run.MaxDepth+1) || refused != 1 {
		t.Errorf("the model was asked %d times, want %d, and told of a refusal %d times", asked, 2*(run.MaxDepth+1), refused)
	}
}

// TestWorkflowToolIsBounded: the work has exactly the rest of the caller's budget, and
// its usage counts for the caller.
func TestWorkflowToolIsBounded(t *testing.T) {
	var w world
	worker := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		for {
			if _, err := flow.Do(ctx, "spend", func(context.Context) (int, error) { return 1, nil }, tool.ReadOnly); err != nil {
				return s, err
			}
			var err error
			if s, err = (&flow.Agent{Name: "w"}).Forward(ctx, s.With(session.UserText("more"))); err != nil {
				return s, err
			}
		}
	})
	m := model(func(r *llm.Request) *llm.Response {
		if len(r.Tools) == 0 {
			return &llm.Response{Text: "spent", Finish: llm.FinishStop, Usage: session.Usage{Input: 100}}
		}
		return calls("worker", "spend")(r)
	})
	rt, _, state, err := w.run1(t, m, lead(worker), func(_ *inprocess.Runtime, task *journal.Task) { task.Budget.Tokens = 5000 })
	if state != run.Failed || !errors.Is(err, run.ErrBudget) {
		t.Errorf("the run is %s: %v", state, err)
	}
	used := must(rt.Runtime.Values.Recorded(t.Context(), home, "r")).Record.Ended.Usage
	if used.Tokens() < 900 || used.Tokens() > 5100 {
		t.Errorf("the run used %+v of 5000 tokens", used)
	}
}

// TestWorkflowToolIsCancelled: a cancel of the caller ends the work.
func TestWorkflowToolIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		asks := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "go on?", nil)
			return s, err
		})
		_, _, state, _ := w.run1(t, calls("worker", "ask"), lead(asks), func(rt *inprocess.Runtime, _ *journal.Task) {
			rt.Answer = func(ctx context.Context, q run.Question) (any, error) {
				return nil, rt.Signal(ctx, journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough"}})
			}
		})
		synctest.Wait()
		_, events := w.branch(t)
		last := events[len(events)-1]
		if closing, err := session.DecodeClosing(last); state != run.Cancelled || err != nil || closing.State != session.ClosedCancelled {
			t.Errorf("the run is %s, the work ends with %s %s", state, last.Kind, last.Data)
		}
	})
}

// TestWorkflowToolIsApproved: an approver approves the work before it begins, with
// changed input, or rejects it.
func TestWorkflowToolIsApproved(t *testing.T) {
	for name, tt := range map[string]struct {
		says flow.Approval
		want string
	}{
		"approved": {flow.Approval{Approved: true}, `got "did mow"`},
		"edited":   {flow.Approval{Approved: true, Value: json.RawMessage(`{"input":"water"}`)}, `got The arguments of this call were changed to {"input":"water"}` + "\n" + `"did water"`},
		"rejected": {flow.Approval{Reason: "no"}, "a person rejected this call: no"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			worker := flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
				return s.With(session.AssistantText("did " + texts(s)[0])), nil
			})
			a := lead(worker)
			a.Approve = func(tool.Spec, json.RawMessage) bool { return true }
			_, ex, state, err := w.run1(t, calls("worker", "mow"), a, func(rt *inprocess.Runtime, _ *journal.Task) {
				rt.Answer = func(context.Context, run.Question) (any, error) { return tt.says, nil }
			})
			if err != nil || state != run.Succeeded || !strings.Contains(ex.Result().Text(), tt.want) {
				t.Errorf("the run is %s and says %q: %v", state, ex.Result().Text(), err)
			}
		})
	}
}
