package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

const deployCalls = `
-- calls --
not result: deploy
call: deploy @c1 {"n": 1}
call: deploy @c2 {"n": 2}
call: deploy @c3 {"n": 3}
call: deploy @c4 {"n": 4}
call: deploy @c5 {"n": 5}
call: deploy @c6 {"n": 6}

-- ends --
result: deploy

done
`

// TestRecordedRefusals audits the system's records of non-idempotent calls: one is rejected,
// one is not answered in time, a hook rejects one, and a hook gives one arguments that the
// tool rejects. Two run, one of them with arguments that the approver changed, after the
// approver's first change was rejected by the tool's schema.
func TestRecordedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		deploy := tool.Func("deploy", "", func(ctx context.Context, in struct {
			N int `json:"n"`
		},
		) (string, error) {
			c, _ := tool.Current(ctx)
			f.note(audit.Execution{Call: c.ID, Attempt: c.Attempt, Tool: "deploy", Effect: "non_idempotent"})
			return "deployed", nil
		}, nil)
		agent := &flow.Agent{
			Name: "a", Tools: []tool.Tool{deploy}, ApproveTimeout: time.Hour,
			Approve: func(tool.Spec, json.RawMessage) bool { return true },
			Hooks: flow.Hooks{BeforeTool: func(_ context.Context, _ tool.Spec, args json.RawMessage) (json.RawMessage, error) {
				switch string(args) {
				case `{"n":5}`:
					return nil, errors.New("not five")
				case `{"n":6}`:
					return json.RawMessage(`{"n":"six"}`), nil
				}
				return nil, nil
			}},
		}
		script, err := scripted.Parse("calls.txtar", []byte(deployCalls))
		must.Do(t, err)
		models, err := scripted.New(script, nil)
		must.Do(t, err)
		values, driver := journal.NewValues(&f.log), &inprocess.Driver{}
		rt := &engine.Runtime{Values: values, Models: models, Mint: commitlog.IDGenerator{Generation: 1, Partitions: 1}}
		answers := make(chan journal.RunWaiting, 10)
		rt.Store = journal.NewStore(&f.log, &journal.StoreOptions{Incarnation: "i1", Values: values, OnCommit: func(e commitlog.Entry) {
			driver.Committed(e)
			for _, ev := range e.Commit.Events {
				if v, err := journal.Decode[journal.RunWaiting](ev); ev.Kind == journal.KindRunWaiting && err == nil {
					answers <- v
				}
			}
		}})
		person := make(chan struct{})
		go func() {
			defer close(person)
			v := <-answers
			for i, said := range []journal.SignalReceived{
				{Kind: journal.Refuse, Reason: "not now"}, {Kind: journal.Approve, Value: `{"n":7}`}, {Kind: journal.Approve},
			} {
				said.By, said.Run, said.Path = "ana", v.Run, v.For[i].Path
				if wrong := said; said.Kind == journal.Approve {
					wrong.Value = `{"n":"many"}`
					if err := rt.Store.Apply(t.Context(), journal.Signal{To: home, Run: v.Run, Received: &wrong}); !errors.Is(err, run.ErrMalformed) {
						t.Errorf("arguments of another type: %v", err)
					}
				}
				must.Report(t, rt.Store.Apply(t.Context(), journal.Signal{To: home, Run: v.Run, Received: &said}))
			}
		}()
		say := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return agent.Forward(ctx, s.With(session.UserText("deploy")))
		})
		g := flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return say }}
		_, state, err := driver.Run(t.Context(), rt, g, journal.Task{ID: "r", Workflow: "w", Session: home})
		<-person
		if err != nil || state != run.Succeeded {
			t.Fatalf("the run is %s: %v", state, err)
		}
		s, err := values.At(t.Context(), session.Ref{Key: home})
		must.Do(t, err)
		var told []string
		for _, c := range s.Range(0, s.Len()) {
			if c.Kind() == session.ToolResult {
				told = append(told, c.Text())
			}
		}
		for i, want := range []string{`"rejected"`, `"deployed"`, `"deployed"`, `"rejected"`, `"rejected"`, `"invalid_tool_arguments"`} {
			if len(told) != 6 || !strings.Contains(told[i], want) {
				t.Fatalf("the calls came to %q; %d should be %s", told, i, want)
			}
		}
		if r := f.audited(t); !r.OK() {
			t.Errorf("violations in a healthy system:\n%s", violations(r))
		}
	})
}

// TestRefusals checks that a call without an intent counts as never begun only if its
// approval prevented it, and its outcome agrees with the approval.
func TestRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		approval string // "" is none
		code     string
		healthy  bool
	}{
		"rejected":             {`"value":"{\"approved\":false}"`, "rejected", true},
		"not answered in time": {`"code":"expired","error":"the time is up"`, "rejected", true},
		"approved with arguments that do not fit": {`"value":"{\"approved\":true,\"value\":{}}"`, "invalid_tool_arguments", true},
		"no person was asked":                     {``, "rejected", false},
		"approved, and said to be rejected":       {`"value":"{\"approved\":true}"`, "rejected", false},
		"approved, and said not to fit":           {`"value":"{\"approved\":true}"`, "invalid_tool_arguments", false},
		"approved with others, and failed":        {`"value":"{\"approved\":true,\"value\":{}}"`, "tool_execution_exception", false},
		"rejected, and it ran":                    {`"value":"{\"approved\":false}"`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			l := w.log("v1", "v1")
			l.commit(l.open("n1"), l.ev("session.opened", `{"kind":"leaf"}`), l.submit("a1", ""), l.claim("a1", "v1", "n1"))
			l.commit(l.step("a1", "1", "model", model, l.chunk("assistant", "I pay")))
			if tc.approval != "" {
				l.commit(l.step("a1", "2.0.approval", "await", ","+tc.approval))
			}
			more := `,"call":"a1/2.0","effect":"non_idempotent","row":true`
			if tc.code != "" {
				more += `,"code":"` + tc.code + `","error":"no","failed":true`
			}
			l.commit(l.step("a1", "2.0", "tool", more, l.chunk("tool_result", "{}")))
			l.commit(in("a1/end", l.end("a1", "succeeded", `,"result":`+l.link()+`,"usage":{"calls":1,"input":100,"output":20}`)))
			r := w.audited()
			if tc.healthy && !r.OK() {
				t.Errorf("violations in a healthy system:\n%s", violations(r))
			}
			if !tc.healthy && (len(r.Violations) != 1 || r.Violations[0].Invariant != audit.NoRepeat) {
				t.Errorf("want one violation of %s, found:\n%s", audit.NoRepeat, violations(r))
			}
		})
	}
}
