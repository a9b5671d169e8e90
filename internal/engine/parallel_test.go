package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestResumeAfterSelect: a run that fails after a Select and a Gather goes on after them,
// and one that fails in a case of a Select waits again.
func TestResumeAfterSelect(t *testing.T) {
	w := newResumable(t)
	w.fail["c"] = 1
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		first, err := flow.Select(ctx, flow.OnApproval("deploy", nil), flow.OnTimer(time.Millisecond))
		if err != nil {
			return s, err
		}
		s = s.With(session.UserText(fmt.Sprintf("%T", first)))
		done := make([]int, 3)
		var fns []func(context.Context) error
		for i := range done {
			fns = append(fns, func(ctx context.Context) (err error) {
				if err := flow.Sleep(ctx, time.Duration(i)*time.Millisecond); err != nil {
					return err
				}
				done[i], err = flow.Do(ctx, fmt.Sprint("part ", i), func(context.Context) (int, error) { return i, nil }, tool.NonIdempotent)
				return err
			})
		}
		if err := flow.Gather(ctx, nil, fns...); err != nil {
			return s, err
		}
		return w.do(ctx, s.With(session.UserText(fmt.Sprint(done))), "c")
	}
	w.run("one", f, run.Failed)
	s, did := w.run("two", f, run.Succeeded, w.resumes("one", ""))
	if want := []string{"*flow.On[time.Time]", "[0 1 2]", "did c"}; did != "c" || fmt.Sprint(texts(s)) != fmt.Sprint(want) {
		t.Errorf("the resumed run called %q, and has %q", did, texts(s))
	}
	expired := func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Select(ctx, flow.OnAnswer[string]("colour", &flow.AwaitOptions{Timeout: time.Millisecond}), flow.OnMessage(s, nil))
		return s, err
	}
	w.run("three", expired, run.Failed)
	w.run("four", expired, run.Failed, w.resumes("three", ""))
	var kinds []string
	h, err := w.values.Recording(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-four"}, "four")
	check(t, err)
	for _, s := range h.Journal.Recorded() {
		kinds = append(kinds, string(s.Path)+" "+s.Kind)
	}
	if !strings.Contains(fmt.Sprint(kinds), "0 select 0.on.0 await") {
		t.Errorf("the resumed run has the steps %v", kinds)
	}
}

// TestSelectedQuestion: an answer to a case of a Select is for the same Select alone, and
// while it waits, as after the answer, the code matches its log.
func TestSelectedQuestion(t *testing.T) {
	var w world
	selects := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if err := flow.Gather(ctx, nil, func(ctx context.Context) error {
			_, err := flow.Do(ctx, "first", func(context.Context) (int, error) { return 1, nil }, tool.Idempotent)
			return err
		}, func(ctx context.Context) error {
			_, err := flow.Approve(ctx, "inner", nil)
			return err
		}); err != nil {
			return s, err
		}
		_, err := flow.Select(ctx, flow.OnApproval("deploy", nil), flow.OnMessage(s, nil))
		return s, err
	})
	replay := func() *engine.Replayed {
		return must(engine.Replay(t.Context(), &w.runtime(nil).Runtime, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return selects }}, home, "r"))
	}
	rt := w.runtime(nil)
	forward(t, t.Context(), start(t, rt, selects), run.Waiting)
	if r := replay(); !r.Matches() {
		t.Errorf("a replay of the run that waits in a Gather: %s", r.Differs)
	}
	check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "0.1.0", By: "ana"}))
	rt = w.runtime(nil)
	forward(t, t.Context(), start(t, rt, selects, resume), run.Waiting)
	if r := replay(); !r.Matches() {
		t.Errorf("a replay of the run that waits in a Select: %s", r.Differs)
	}
	check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "1.on.0", By: "ana"}))
	if err := talk(t, rt, journal.SignalReceived{Kind: journal.Refuse, Path: "1.on.0", By: "bob"}); !errors.Is(err, run.ErrState) {
		t.Errorf("a second answer: %v", err)
	}
	other := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if err := flow.Gather(ctx, nil, func(context.Context) error { return nil }, func(context.Context) error { return nil }); err != nil {
			return s, err
		}
		return s, nil
	})
	err := forward(t, t.Context(), start(t, w.runtime(nil), other, resume), run.NeedsReview)
	if !errors.Is(err, run.ErrMismatch) {
		t.Errorf("code without the steps of the functions: %v", err)
	}
	check(t, w.runtime(nil).Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, By: "ana", Reason: "the code is back"}}))
	forward(t, t.Context(), start(t, w.runtime(nil), selects, resume), run.Succeeded)
	if r := replay(); !r.Matches() {
		t.Errorf("a replay of the run that has ended: %s", r.Differs)
	}
}

// TestGatheredAgents: agents work concurrently on sessions of their own, no more of them
// than the limit.
func TestGatheredAgents(t *testing.T) {
	m := model(func(r *llm.Request) *llm.Response {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == llm.User {
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "a", Name: "words", Args: `{"text":"one two"}`}, {ID: "b", Name: "words", Args: `{"text":"one"}`}}}
		}
		return &llm.Response{Text: "done", Finish: llm.FinishStop}
	})
	var w world
	var working, most atomic.Int32
	ex := start(t, w.runtime(m), func(ctx context.Context, s session.Session) (session.Session, error) {
		said := make([]string, 20)
		var fns []func(context.Context) error
		for i := range said {
			fns = append(fns, func(ctx context.Context) error {
				n := working.Add(1)
				defer working.Add(-1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				mine, err := flow.Detach(ctx, s)
				if err != nil {
					return err
				}
				agent := &flow.Agent{Name: "counter", Prompt: "count", Tools: []tool.Tool{words}}
				mine, err = agent.Forward(ctx, mine.With(session.UserText(fmt.Sprint("count ", i))))
				said[i] = mine.Text()
				return err
			})
		}
		if err := flow.Gather(ctx, &flow.GatherOptions{Limit: 4}, fns...); err != nil {
			return s, err
		}
		return s.With(session.AssistantText(strings.Join(said, " "))), nil
	})
	forward(t, t.Context(), ex, run.Succeeded)
	if got := ex.Result().Text(); got != strings.TrimSpace(strings.Repeat("done ", 20)) || most.Load() > 4 {
		t.Errorf("the agents say %q, and %d worked at the same time", got, most.Load())
	}
}

// TestGatherCancelled: a cancel ends functions that wait and functions that work.
func TestGatherCancelled(t *testing.T) {
	var w world
	rt := w.runtime(nil)
	began := make(chan struct{})
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		return s, flow.Gather(ctx, nil,
			func(ctx context.Context) error { _, err := flow.Approve(ctx, "never", nil); return err },
			func(ctx context.Context) error {
				_, err := flow.Do(ctx, "works", func(ctx context.Context) (int, error) {
					close(began)
					<-ctx.Done()
					return 0, ctx.Err()
				}, tool.Idempotent)
				return err
			})
	})
	go func() {
		<-began
		_ = rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough", Run: "r"}})
	}()
	if err := forward(t, t.Context(), ex, run.Cancelled); !errors.Is(err, run.ErrCancelled) {
		t.Errorf("the run ended with %v", err)
	}
}
