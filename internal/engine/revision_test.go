package engine_test

import (
	"context"
	"errors"
	"slices"
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

// TestOtherRevisionGoesOn: code that does not match the journal releases the run while a
// node offers the matching code, which resumes the run.
func TestOtherRevisionGoesOn(t *testing.T) {
	var w world
	cut, cancel := context.WithCancelCause(t.Context())
	ran := map[string]int{}
	code := func(notes string, after func()) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			for _, name := range []string{notes, "publish"} {
				if _, err := flow.Do(ctx, name, func(context.Context) (int, error) { ran[name]++; return 1, nil }, tool.NonIdempotent); err != nil {
					return s, err
				}
				after()
			}
			return s, nil
		}
	}
	begin := func(revision string, f flow.Func, elsewhere bool) *engine.Execution {
		t.Helper()
		rt := w.runtime(nil)
		rt.Runtime.Offered = func(_ context.Context, workflow, revision string) bool {
			return elsewhere && workflow == "w" && revision == "1"
		}
		ex := must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", Revision: revision, New: func() flow.Workflow { return f }}, journal.Task{
			ID: "r", Workflow: "w", Session: home, Resume: w.n > 1,
		}))
		return ex
	}
	forward(t, cut, begin("1", code("notes", func() { cancel(run.ErrShutdown) }), false), run.Queued)
	state, err := begin("2", code("other notes", func() {}), true).Forward(t.Context())
	if state != run.Queued || !errors.Is(err, run.ErrMismatch) {
		t.Fatalf("the other code: state %s: %v", state, err)
	}
	all := facts[journal.Released](t, &w, journal.KindReleased)
	if last := all[len(all)-1]; last.Revision != "1" || last.Step != "0" || last.Attempt != 2 {
		t.Errorf("it gives the run back as %+v", last)
	}
	if state, err := begin("1", code("notes", func() {}), true).Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("the code that it is of: state %s: %v", state, err)
	}
	if ran["notes"] != 1 || ran["publish"] != 1 || ran["other notes"] != 0 {
		t.Errorf("the steps ran %v", ran)
	}
}

// TestQuestionGoesBackToItsRevision: code that changed while a question was open returns
// the run, with the answer, to the code that asked. Only the question identifies that
// code.
func TestQuestionGoesBackToItsRevision(t *testing.T) {
	did := ""
	do := func(ctx context.Context, name string) error {
		_, err := flow.Do(ctx, name, func(context.Context) (int, error) { did += name; return 0, nil }, tool.NonIdempotent)
		return err
	}
	asks := func(name string) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			if a, err := flow.Approve(ctx, name, nil); err != nil || !a.Approved {
				return s, errors.Join(err, ctx.Err())
			}
			return s, do(ctx, name)
		}
	}
	for name, other := range map[string]flow.Func{
		"another question": asks("delete"),
		"another step": func(ctx context.Context, s session.Session) (session.Session, error) {
			return s, do(ctx, "more")
		},
		"a version": func(ctx context.Context, s session.Session) (session.Session, error) {
			if _, err := flow.ChangeVersion(ctx, "asks later", 1, 1); err != nil {
				return s, err
			}
			return asks("publish")(ctx, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			did = ""
			begin := func(revision string, f flow.Func) *engine.Execution {
				rt := w.runtime(nil)
				rt.Runtime.Offered = func(_ context.Context, _, revision string) bool { return revision == "old" }
				return must(rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", Revision: revision, New: func() flow.Workflow { return f }}, journal.Task{
					ID: "r", Workflow: "w", Session: home, Resume: w.n > 1,
				}))
			}
			forward(t, t.Context(), begin("old", asks("publish")), run.Waiting)
			check(t, talk(t, w.runtime(nil), journal.SignalReceived{Kind: journal.Approve, Path: "0", By: "ana"}))
			if err := forward(t, t.Context(), begin("new", other), run.Queued); !errors.Is(err, run.ErrMismatch) {
				t.Errorf("the other code gives the run back because of %v", err)
			}
			all := facts[journal.Released](t, &w, journal.KindReleased)
			if last := all[len(all)-1]; last.Revision != "old" || last.Step != "0" {
				t.Errorf("it gives the run back as %+v", last)
			}
			if forward(t, t.Context(), begin("old", asks("publish")), run.Succeeded); did != "publish" {
				t.Errorf("the run did %q", did)
			}
		})
	}
}

// formerSummary is an old version of flow.Summarise, which left its fork open.
type formerSummary struct{}

func (formerSummary) Decide(ctx context.Context, j *flow.Joined) (flow.Verdict, error) {
	s, err := flow.Fork(ctx, j.Base)
	if err != nil {
		return flow.Verdict{}, err
	}
	for _, o := range j.Outcomes {
		s = s.With(session.UserText("Result of branch " + o.Name + ":\n" + o.Session.Text()))
	}
	short, err := (&flow.Compressor{Name: "c"}).Forward(ctx, s)
	if err != nil {
		return flow.Verdict{}, err
	}
	return flow.Verdict{Take: []int{0, 1}, Text: texts(short)[0]}, flow.Reject(ctx, short, "it only summarised")
}

// TestFormerSummary: a run that is past a former Summarise continues only under the
// revision that had it, and a replay reports the difference.
func TestFormerSummary(t *testing.T) {
	log, d := &commitlog.Memory{}, &inprocess.Driver{}
	values := journal.NewValues(log)
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: d.Committed}),
		Models: model(func(*llm.Request) *llm.Response {
			return &llm.Response{Text: "short", Finish: llm.FinishStop}
		}),
		Offered: func(_ context.Context, workflow, revision string) bool { return workflow == "w" && revision == "1" },
	}}
	cut, cancel := context.WithCancelCause(t.Context())
	offer := func(revision string, p flow.Policy) flow.Registration {
		return flow.Registration{Name: "w", Revision: revision, New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("long")}, {Name: "b", Workflow: say("longer")}}, nil)
				if err != nil {
					return s, err
				}
				if s, err = flow.Merge(ctx, j, p); err != nil {
					return s, err
				}
				cancel(run.ErrShutdown)
				return say("end").Forward(ctx, s)
			})
		}}
	}
	former, now := offer("1", formerSummary{}), offer("2", flow.Summarise(&flow.Compressor{Name: "c"}))
	task := journal.Task{ID: "r", Workflow: "w", Session: home, Revision: "1"}
	if _, state, err := d.Run(cut, &rt.Runtime, former, task); state != run.Queued {
		t.Fatalf("the former code: state %s: %v", state, err)
	}
	task.Resume = true
	if _, state, err := d.Run(t.Context(), &rt.Runtime, now, task); state != run.Queued || !errors.Is(err, run.ErrMismatch) {
		t.Fatalf("the code of now: state %s: %v", state, err)
	}
	if _, state, err := d.Run(t.Context(), &rt.Runtime, former, task); state != run.Succeeded {
		t.Fatalf("the former code again: state %s: %v", state, err)
	}
	if r, err := engine.Replay(t.Context(), &rt.Runtime, former, home, "r"); err != nil || !r.Matches() {
		t.Errorf("the replay of the former code: %+v, %v", r, err)
	}
	const want = "is recorded as join summarise, the code asks for reject rejected"
	if r, err := engine.Replay(t.Context(), &rt.Runtime, now, home, "r"); err != nil || !strings.Contains(r.Differs, want) || r.Code != "2" || !slices.Equal(r.Revisions, []string{"1"}) {
		t.Errorf("the replay of the code of now says %+v, %v", r, err)
	}
}

// TestWorkflowThatFailsBeforeItsSteps: a later execution that ends before it reaches the
// recorded steps, because its workflow cannot be made or fails at once, waits for an
// operator, who gets the reason.
func TestWorkflowThatFailsBeforeItsSteps(t *testing.T) {
	for name, g := range map[string]flow.Registration{
		"made": {NewFor: func(flow.Info) (flow.Workflow, error) { return nil, errors.New("no such directory") }},
		"fails": {New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
				return s, errors.New("no such directory")
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			cut, cancel := context.WithCancelCause(t.Context())
			forward(t, cut, start(t, w.runtime(nil), func(ctx context.Context, s session.Session) (session.Session, error) {
				if _, err := flow.Do(ctx, "notes", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent); err != nil {
					return s, err
				}
				cancel(run.ErrShutdown)
				_, err := flow.Do(ctx, "publish", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
				return s, err
			}), run.Queued)
			g.Name, g.Revision = "w", "1"
			ex := must(w.runtime(nil).Runtime.Begin(t.Context(), g, journal.Task{ID: "r", Workflow: "w", Session: home, Resume: true}))
			if err := forward(t, t.Context(), ex, run.NeedsReview); !errors.Is(err, run.ErrMismatch) || !strings.Contains(err.Error(), "no such directory") {
				t.Errorf("the review says %v", err)
			}
		})
	}
}
