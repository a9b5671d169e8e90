package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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

// story is a workflow with a step of each kind; change makes another version of
// its code.
type story struct{ change string }

func (w story) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	name := "prepare"
	if w.change == "renamed" {
		name = "preparation"
	}
	_, err := flow.Do(ctx, name, func(context.Context) (string, error) { return "ready", nil }, tool.NonIdempotent)
	if err != nil {
		return s, err
	}
	if w.change == "approval" {
		if _, err := flow.Approve(ctx, "Go on?", nil); err != nil {
			return s, err
		}
	}
	agent := &flow.Agent{Name: "counter", Prompt: "count", Tools: []tool.Tool{words}}
	if w.change == "prompt" {
		agent.Prompt = "count well"
	}
	s = s.With(session.UserText("count one two"))
	try, err := flow.Fork(ctx, s)
	if err != nil {
		return s, err
	}
	if try, err = agent.Forward(ctx, try); err != nil {
		return s, err
	}
	if s, err = flow.Adopt(ctx, s, try, "it counts"); err != nil {
		return s, err
	}
	inner := func(name string) flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			if w.change == "branch" && name == "b" {
				name = "another b"
			}
			s, err := say("in "+name).Forward(ctx, s)
			if err != nil || w.change == "branch" && name == "another b" {
				return s, err
			}
			return say("still "+name).Forward(ctx, s)
		})
	}
	j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: inner("a")}, {Name: "b", Workflow: inner("b")}, {Name: "bad", Workflow: failing("broken")}}, nil)
	if err != nil {
		return s, err
	}
	if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil || w.change == "shorter" {
		return s, err
	}
	if s, err = say("end").Forward(ctx, s); err != nil {
		return s, err
	}
	if w.change == "longer" {
		s, err = say("more").Forward(ctx, s)
	}
	if w.change == "failing" {
		err = errors.New("no")
	}
	return s, err
}

func TestReplay(t *testing.T) {
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	d := &inprocess.Driver{}
	asked := 0
	m := model(func(r *llm.Request) *llm.Response {
		asked++
		if last := r.Messages[len(r.Messages)-1]; last.Role == llm.User {
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "a", Name: "words", Args: `{"text":"one two"}`}}}
		}
		return &llm.Response{Text: "two words", Finish: llm.FinishStop}
	})
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: m, Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: d.Committed})}}
	offer := func(change string) flow.Registration {
		return flow.Registration{Name: "story", Revision: "r-" + change, New: func() flow.Workflow { return story{change} }}
	}
	k := session.Key{Tenant: "default", ID: "home"}
	_, state, err := d.Run(t.Context(), &rt.Runtime, offer(""), journal.Task{ID: "one", Workflow: "story", Session: k})
	if err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	before, err := log.Last(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	calls := asked
	for _, c := range []struct{ change, want string }{
		{"", ""},
		{"renamed", "step 0 is recorded as do prepare, the code asks for do preparation"},
		{"approval", "step 1 is recorded as fork, the code asks for await Go on?"},
		{"prompt", "step 2, model counter, is recorded for another input"},
		{"shorter", "the code ends without step 7 (do say), which is recorded"},
		{"longer", "the run succeeded, the code goes on with do say at step"},
		{"failing", "the run succeeded, the code fails: no"},
		{"branch", "branch b: "},
	} {
		t.Run("changed "+c.change, func(t *testing.T) {
			r := must(engine.Replay(t.Context(), &rt.Runtime, offer(c.change), k, "one"))
			got := r.Differs
			for _, b := range r.Branches {
				if got == "" && b.Differs != "" {
					got = "branch " + b.Branch + ": " + b.Differs
				}
			}
			if (c.want == "") != r.Matches() || !strings.Contains(got, c.want) {
				t.Errorf("the replay says %q, want %q", got, c.want)
				for _, s := range r.Steps {
					t.Logf("%+v", s)
				}
			}
			if c.change == "" && (len(r.Branches) != 3 || len(r.Steps) < 10 || r.Code != "r-" || r.Revisions[0] != "r-") {
				t.Errorf("the replay is of %d branches and %d steps: %+v", len(r.Branches), len(r.Steps), r)
			}
			if c.change == "shorter" && r.Steps[len(r.Steps)-1].Verdict != engine.StepUnreached {
				t.Errorf("the last step is %+v", r.Steps[len(r.Steps)-1])
			}
		})
	}
	if asked != calls {
		t.Errorf("the replays called the model %d times", asked-calls)
	}
	if after, err := log.Last(t.Context(), k); err != nil || after.At != before.At {
		t.Errorf("the replays wrote to the log: %v, %v", after.At, err)
	}
	if _, err := engine.Replay(t.Context(), &rt.Runtime, offer(""), k, "two"); !errors.Is(err, run.ErrUnknownRun) {
		t.Errorf("a run that no log holds: %v", err)
	}
}

// TestReplayWaiting replays a run that waits for an approval, and again after the
// rejection.
func TestReplayWaiting(t *testing.T) {
	log := &commitlog.Memory{}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values})}}
	g := flow.Registration{Name: "ask", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			a, err := flow.Approve(ctx, "Publish?", nil)
			if err != nil {
				return s, err
			}
			if !a.Approved {
				return s, errors.New("rejected: " + a.Reason)
			}
			return s.With(session.UserText("published")), nil
		})
	}}
	k := session.Key{Tenant: "default", ID: "home"}
	task := journal.Task{ID: "one", Workflow: "ask", Session: k}
	ex, err := rt.Runtime.Begin(t.Context(), g, task)
	if err != nil {
		t.Fatal(err)
	}
	if state, _ := ex.Forward(t.Context()); state != run.Waiting {
		t.Fatalf("the run is %s", state)
	}
	r, err := engine.Replay(t.Context(), &rt.Runtime, g, k, "one")
	if err != nil || !r.Matches() || r.State != run.Waiting || len(r.Steps) != 1 || r.Steps[0].Verdict != engine.StepNew {
		t.Fatalf("while it waits: %+v, %v", r, err)
	}
	no := journal.Signal{To: k, Run: "one", Received: &journal.SignalReceived{Kind: journal.Refuse, Path: "0", Reason: "not yet"}}
	check(t, rt.Signal(t.Context(), no))
	task.Resume = true
	if ex, err = rt.Runtime.Begin(t.Context(), g, task); err != nil {
		t.Fatal(err)
	}
	if state, _ := ex.Forward(t.Context()); state != run.Failed {
		t.Fatalf("the run is %s", state)
	}
	r, err = engine.Replay(t.Context(), &rt.Runtime, g, k, "one")
	if err != nil || !r.Matches() || r.State != run.Failed || len(r.Steps) != 1 || r.Steps[0].Verdict != engine.StepMatches {
		t.Fatalf("after the answer: %+v, %v", r, err)
	}
}
