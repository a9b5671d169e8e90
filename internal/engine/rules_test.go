package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestRules: the operator's rules let calls run, ask and refuse, over crashes and changes of
// the rules: a call that is recorded stands, and an approver cannot change the arguments
// into refused ones.
func TestRules(t *testing.T) {
	list := func(bound int) *rules.List {
		return must(rules.Parse("rules.yaml", fmt.Appendf(nil, `
rules:
  - {verdict: allow, tool: pay, amount: {arg: n, bound: 100}}
  - {verdict: ask, tool: pay, amount: {arg: n, bound: %d}}
  - {verdict: refuse, tool: pay, amount: {arg: n, bound: 50}, reason: use the bank}
`, bound)))
	}
	type in struct {
		N int `json:"n"`
	}
	var paid []int
	pay := tool.Func("pay", "Pays.", func(_ context.Context, v in) (int, error) {
		paid = append(paid, v.N)
		return v.N, nil
	}, &tool.FuncOptions{Lane: func(json.RawMessage) string { return "one" }})
	var w world
	var stop context.CancelCauseFunc
	models := client(func(ctx context.Context, r *llm.Request) (*llm.Response, error) {
		if r.Messages[len(r.Messages)-1].Role == llm.Tool {
			if stop != nil {
				stop(run.ErrShutdown)
				stop = nil
				return nil, context.Cause(ctx)
			}
			return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
		}
		var calls []session.ToolCall
		for i, n := range []int{1, 20, 60, 30} {
			calls = append(calls, session.ToolCall{ID: string(rune('a' + i)), Name: "pay", Args: fmt.Sprintf(`{"n":%d}`, n)})
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: calls}, nil
	})
	work := func(ctx context.Context, s session.Session) (session.Session, error) {
		return (&flow.Agent{Name: "a", Tools: []tool.Tool{pay}}).Forward(ctx, s.With(session.UserText("go")))
	}
	rt := w.runtime(models)
	rt.Runtime.Rules = list(10)
	ex := start(t, rt, work)
	forward(t, t.Context(), ex, run.Waiting)
	if len(paid) > 0 {
		t.Errorf("paid %v before the questions were answered", paid)
	}
	r := must(rt.Runtime.Values.Recorded(t.Context(), home, "r"))
	if q := r.Record.Suspended.For; len(q) != 2 || !strings.Contains(q[0].Title, "run pay? rule rules.yaml:4 (ask)") {
		t.Errorf("questions %+v", q)
	}
	check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "0.1.approval", By: "ana"}))
	check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "0.3.approval", By: "ana", Value: `{"n":70}`}))
	var ctx context.Context
	ctx, stop = context.WithCancelCause(t.Context())
	defer func() {
		if stop != nil {
			stop(nil)
		}
	}()
	rt = w.runtime(models)
	rt.Runtime.Rules = list(10)
	forward(t, ctx, start(t, rt, work, resume), run.Queued)
	rt = w.runtime(models)
	rt.Runtime.Rules = must(rules.Parse("stricter.yaml", []byte("otherwise: refuse\nrules: []")))
	ex = start(t, rt, work, resume)
	forward(t, t.Context(), ex, run.Succeeded)
	if !slices.Equal(paid, []int{1, 20}) {
		t.Errorf("paid %v", paid)
	}
	var rows []string
	for _, c := range ex.Result().Chunks() {
		if c.Kind() == session.ToolResult {
			rows = append(rows, c.Text())
		}
	}
	if rows[0] != "1" || rows[1] != "20" || !strings.Contains(rows[2], "rule rules.yaml:5 (refuse): use the bank") || !strings.Contains(rows[3], "refuses the call") {
		t.Errorf("the model got %q", rows)
	}
}

// TestRulesOfBegunWork: stricter rules do not refuse a call whose work has begun.
func TestRulesOfBegunWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var runtime *inprocess.Runtime
		worker := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			runtime.Runtime.Rules = must(rules.Parse("stricter.yaml", []byte("otherwise: refuse\nrules: []")))
			return s.With(session.AssistantText("slept")), flow.Sleep(ctx, time.Minute)
		})
		_, ex, state, err := w.run1(t, calls("worker", "nap"), lead(worker), func(rt *inprocess.Runtime, _ *journal.Task) { runtime = rt })
		if err != nil || state != run.Succeeded {
			t.Fatalf("the run is %s: %v", state, err)
		}
		if rows := texts(ex.Result()); rows[len(rows)-1] != `got "slept"` {
			t.Errorf("the rows are %q", rows)
		}
	})
}
