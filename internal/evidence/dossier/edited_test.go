package dossier_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestEditedCall checks that the evidence shows the actual arguments of a tool call, which
// differ from the model's if an approver changed them.
func TestEditedCall(t *testing.T) {
	type in struct {
		N int `json:"n"`
	}
	pay := tool.Func("pay", "Pays.", func(_ context.Context, v in) (int, error) { return v.N, nil }, nil)
	calls := model(func(r *llm.Request) *llm.Response {
		if r.Messages[len(r.Messages)-1].Role == llm.Tool {
			return &llm.Response{Text: "done"}
		}
		return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{
			{ID: "a", Name: "pay", Args: `{"n":1}`}, {ID: "b", Name: "pay", Args: `{"n":2}`},
		}}
	})
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		var d inprocess.Driver
		rt := w.node("alpha", &w.log, calls)
		rt.Store = journal.NewStore(&w.log, &journal.StoreOptions{Incarnation: "alpha-1", Values: rt.Values, OnCommit: func(e commitlog.Entry) {
			d.Committed(e)
			for _, ev := range e.Commit.Events {
				if s, err := journal.Decode[journal.RunWaiting](ev); ev.Kind == journal.KindRunWaiting && err == nil {
					go func() {
						v := journal.SignalReceived{Kind: journal.Approve, By: "ana", Run: s.Run, Path: s.For[0].Path, Value: `{"n":20}`}
						w.must(rt.Store.Apply(t.Context(), journal.Signal{To: home, Run: s.Run, Received: &v}))
					}()
				}
			}
		}})
		g := flow.Registration{Name: "shape", Revision: "r1", New: func() flow.Workflow {
			buyer := &flow.Agent{Name: "buyer", Tools: []tool.Tool{pay}, Approve: func(_ tool.Spec, args json.RawMessage) bool {
				return string(args) == `{"n":2}`
			}}
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return buyer.Forward(ctx, s.With(session.UserText("buy")))
			})
		}}
		if _, state, err := d.Run(t.Context(), rt, g, journal.Task{ID: fixRun, Workflow: "shape", Revision: "r1", Session: home}); state != run.Succeeded {
			t.Fatalf("the run ended as %s: %v", state, err)
		}
		synctest.Wait()
		got := map[run.Path]string{}
		for _, s := range w.check(fixRun, home).Steps {
			if s.Kind == journal.StepTool {
				got[s.Path] = s.Args.Shown + " -> " + s.Body.Shown
			}
		}
		if got["0.0"] != `{"n":1} -> 1` || got["0.1"] != `{"n":20} -> 20` {
			t.Errorf("the calls were %q", got)
		}
	})
}
