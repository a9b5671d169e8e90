package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// threeCalls is a model that counts words three times in one answer, and then repeats its
// last message.
func threeCalls(r *llm.Request) *llm.Response {
	last := r.Messages[len(r.Messages)-1]
	if last.Role == llm.User && !strings.HasPrefix(last.Text, "You are not done") {
		var all []session.ToolCall
		for _, text := range []string{"one", "secret", "one two"} {
			all = append(all, session.ToolCall{ID: text, Name: "words", Args: `{"text":"` + text + `"}`})
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: all}
	}
	return &llm.Response{Text: "read " + last.Text, Finish: llm.FinishStop}
}

// TestHooks: hooks change and reject calls, their decisions are recorded, and a replay
// calls no hooks.
func TestHooks(t *testing.T) {
	var w world
	var seen []string
	note := func(format string, args ...any) { seen = append(seen, fmt.Sprintf(format, args...)) }
	ended := 0
	a := &flow.Agent{Name: "a", Tools: []tool.Tool{words}, Hooks: flow.Hooks{
		BeforeModel: func(_ context.Context, s session.Session) error { note("model %d", s.Len()); return nil },
		AfterModel:  func(_ context.Context, s session.Session) error { note("answer %d", s.Len()); return nil },
		BeforeTool: func(_ context.Context, spec tool.Spec, args json.RawMessage) (json.RawMessage, error) {
			note("call %s %s", spec.Name, args)
			switch {
			case strings.Contains(string(args), "secret"):
				return nil, errors.New("no secrets")
			case strings.Contains(string(args), "two"):
				return json.RawMessage(`{"text":"one two three"}`), nil
			}
			return nil, nil
		},
		AfterTool: func(_ context.Context, _ tool.Spec, _ json.RawMessage, r tool.Result) (tool.Result, error) {
			if r.Text() == "1" {
				return tool.Result{}, errors.New("too few")
			}
			r.Body = map[string]any{"words": r.Body}
			return r, nil
		},
		End: func(context.Context, session.Session) error {
			if ended++; ended == 1 {
				return errors.New("say more")
			}
			return nil
		},
	}}
	rt, ex, state, err := w.run1(t, model(threeCalls), a, nil)
	if err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	want := []string{
		"model 1", "answer 2", `call words {"text":"one"}`, `call words {"text":"secret"}`, `call words {"text":"one two"}`,
		"model 5", "answer 6", "model 7", "answer 8",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("the hooks saw %q, want %q", seen, want)
	}
	rows := texts(ex.Result())
	for i, part := range map[int]string{
		2: "the result of this call is withheld: too few", 3: "this call was refused, and did not run: no secrets",
		4: `{"words":3}`, 6: "You are not done: say more", 7: "read You are not done",
	} {
		if !strings.Contains(rows[i], part) {
			t.Errorf("row %d says %q, want %q", i, rows[i], part)
		}
	}
	if c, _ := ex.Result().At(6); c.Origin().Agent != journal.ByHook {
		t.Errorf("the hook's words are of %+v", c.Origin())
	}
	again := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return a.Forward(ctx, s.With(session.UserText("go")))
		})
	}}
	n := len(seen)
	if r := must(engine.Replay(t.Context(), &rt.Runtime, again, home, "r")); !r.Matches() || len(seen) != n || ended != 2 {
		t.Errorf("the replay says %q and called %d hooks", r.Differs, len(seen)-n+ended-2)
	}
	var decided []string
	for _, s := range w.steps(t, home) {
		if s.Name == "before words" {
			decided = append(decided, s.Summary)
		}
	}
	if want := []string{"lets words run", "refuses words: no secrets", "changes the arguments of words"}; !slices.Equal(decided, want) {
		t.Errorf("recorded is %q, want %q", decided, want)
	}
}

// TestHooksRefuseAModelCall: a rejection before or after a model call ends the agent with
// the hook's text, and so does a panic or a step inside of a hook.
func TestHooksRefuseAModelCall(t *testing.T) {
	no := func(context.Context, session.Session) error { return errors.New("not today") }
	var ctxOf context.Context
	for name, tt := range map[string]struct {
		hooks flow.Hooks
		asked int
		says  string
	}{
		"before": {flow.Hooks{BeforeModel: no}, 0, "before model of a: not today"},
		"after":  {flow.Hooks{AfterModel: no}, 1, "after model of a: not today"},
		"panics": {flow.Hooks{BeforeModel: func(context.Context, session.Session) error { panic("ouch") }}, 0, "ouch"},
		"a step in a hook of a tool": {flow.Hooks{BeforeTool: func(context.Context, tool.Spec, json.RawMessage) (json.RawMessage, error) {
			_, err := flow.Do(ctxOf, "x", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
			return nil, err
		}}, 1, "cannot be made inside of"},
		"a step in a hook of a model": {flow.Hooks{BeforeModel: func(ctx context.Context, s session.Session) error {
			_, err := flow.Fork(ctx, s)
			return err
		}}, 0, "cannot be made inside of"},
	} {
		t.Run(name, func(t *testing.T) {
			var w world
			asked := 0
			m := model(func(r *llm.Request) *llm.Response { asked++; return threeCalls(r) })
			a := &flow.Agent{Name: "a", Tools: []tool.Tool{words}, Hooks: tt.hooks}
			f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				ctxOf = ctx
				return a.Forward(ctx, s)
			})
			_, _, state, err := w.run1(t, m, f, nil)
			if state != run.Failed || err == nil || !strings.Contains(err.Error(), tt.says) || asked != tt.asked {
				t.Errorf("the run is %s after %d calls: %v", state, asked, err)
			}
		})
	}
}

// TestHookSeesWhatAPersonPutIn: the hook gets arguments that an approver changed, a call
// that it rejects does not run, and a replay does not call it.
func TestHookSeesWhatAPersonPutIn(t *testing.T) {
	var w world
	var seen []string
	var ran atomic.Int64
	count := tool.Func("words", "Counts.", func(_ context.Context, in wordsIn) (int, error) {
		ran.Add(1)
		return len(strings.Fields(in.Text)), nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	a := &flow.Agent{
		Name: "a", Tools: []tool.Tool{count}, Approve: func(tool.Spec, json.RawMessage) bool { return true },
		Hooks: flow.Hooks{BeforeTool: func(_ context.Context, _ tool.Spec, args json.RawMessage) (json.RawMessage, error) {
			seen = append(seen, string(args))
			if strings.Contains(string(args), "secret") {
				return nil, errors.New("no secrets")
			}
			return nil, nil
		}},
	}
	m := model(func(r *llm.Request) *llm.Response {
		if r.Messages[len(r.Messages)-1].Role == llm.User {
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{
				{ID: "1", Name: "words", Args: `{"text":"a"}`}, {ID: "2", Name: "words", Args: `{"text":"b"}`}, {ID: "3", Name: "words", Args: `{"text":"c"}`},
			}}
		}
		return &llm.Response{Text: "done", Finish: llm.FinishStop}
	})
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		return a.Forward(ctx, s.With(session.UserText("go")))
	}
	rt := w.runtime(m)
	forward(t, t.Context(), start(t, rt, work), run.Waiting)
	for path, value := range map[run.Path]string{"0.0.approval": `{"text":"secret"}`, "0.1.approval": "", "0.2.approval": `{"text":"c d"}`} {
		check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: path, By: "ana", Value: value}))
	}
	ex := start(t, w.runtime(m), work, resume)
	forward(t, t.Context(), ex, run.Succeeded)
	if want := []string{`{"text":"a"}`, `{"text":"b"}`, `{"text":"c"}`, `{"text":"secret"}`, `{"text":"c d"}`}; !slices.Equal(seen, want) || ran.Load() != 2 {
		t.Errorf("the hook saw %q, want %q, and %d calls ran", seen, want, ran.Load())
	}
	rows := texts(ex.Result())
	if !strings.Contains(rows[2], "did not run: no secrets") || rows[3] != "1" || rows[4] != "2" {
		t.Errorf("the results are %q", rows[2:5])
	}
	again := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return flow.Func(work) }}
	if r := must(engine.Replay(t.Context(), &rt.Runtime, again, home, "r")); !r.Matches() || len(seen) != 5 {
		t.Errorf("the replay says %q and called %d hooks", r.Differs, len(seen)-5)
	}
}
