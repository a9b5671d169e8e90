package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// graph is a workflow that starts itself as runs that begin after each other: a, b after it,
// c after both, sad after bad, and glad however bad ends. With a limit, c needs its grant too.
func graph(ctx context.Context, s session.Session) (session.Session, error) {
	switch i, _ := flow.RunInfo(ctx); i.Run {
	case "r":
	case "bad":
		return s, errors.New("no more")
	default:
		return s.With(session.AssistantText("done")), flow.Sleep(ctx, time.Second)
	}
	var all []flow.Started
	for _, t := range []flow.Task{
		{ID: "a"},
		{ID: "b", After: []run.ID{"a"}},
		{ID: "bad"},
		{ID: "c", After: []run.ID{"a", "b"}},
		{ID: "sad", After: []run.ID{"bad"}},
		{ID: "glad", AfterAny: []run.ID{"bad"}, After: []run.ID{"a"}},
	} {
		t.Workflow, t.Input = "w", json.RawMessage(`{"key":"k"}`)
		one, err := flow.Start(ctx, t)
		if err != nil {
			return s, err
		}
		all = append(all, one)
		if err := flow.Sleep(ctx, time.Millisecond); err != nil {
			return s, err
		}
	}
	for _, one := range all {
		end, err := one.Result(ctx, 0)
		want := map[run.ID]run.Code{"bad": run.CodeError, "sad": run.CodeAfter}[one.Run]
		if err != nil || end.Code != want {
			return s, fmt.Errorf("run %s ended as %s %s: %w: %w", one.Run, end.State, end.Code, err, end.Err)
		}
	}
	return s.With(session.AssistantText("all done")), nil
}

// TestRecordedPredecessors: the auditor accepts runs that begin after others and whose process
// dies at each append, and finds runs that began before.
func TestRecordedPredecessors(t *testing.T) {
	const a, b = `"run":"a","session":"35923bb0053aaf957c1b-1-0"`, `"home":{"session":"e5d5088e741f647497c3-1-0","tenant":"default"}`
	lives{begin: fresh(graph), ends: run.Succeeded, runs: 7, forgeries: []forgery{
		{`{"data":{"run":"b","workflow":"w"},"kind":"run.granted"`, `{"data":{"attempt":1,"epoch":1,` + b + `,"incarnation":"i1","run":"b","workflow":"w"},"kind":"run.claimed"`, "run.granted before a run is claimed that begins after others"},
		{`{"data":{"run":"c","workflow":"w"},"kind":"run.granted"`, `{"data":{"run":"c","workflow":"w"},"kind":"vendor.note"`, "none: it would wait for ever"},
		{`"run":"a","starter":{"path":"0","run":"r","session":"home-1-0"},"state":"succeeded"`, `"run":"a","starter":{"path":"0","run":"r","session":"home-1-0"},"state":"failed"`, "the outcome of run a as its run.ended has it"},
		{`"state":"succeeded","steps":1,"version":1,"workflow":"w"},"kind":"run.ended"`, `"state":"succeeded","steps":1,"version":1,"workflow":"w"},"kind":"vendor.note"`, "the outcome of run a as its run.ended has it"},
		{`"state":"failed"},"kind":"ended","n":1,"run":"sad"`, `"state":"succeeded"},"kind":"ended","n":1,"run":"sad"`, "the outcome of run bad as its run.ended has it"},
		{`"kind":"ended","n":1,"run":"sad"},"kind":"run.received"`, `"kind":"ended","n":1,"run":"sad"},"kind":"vendor.note"`, "the end of a run that does not let it begin before after_failed"},
		{`"ended":{` + a + `,"state":"succeeded"},"kind":"ended","n":2,"run":"glad"`, `"ended":{"run":"bad","session":"6c3c9968f51266ffe797-1-0","state":"failed"},"kind":"ended","n":2,"run":"glad"`, "the end of a run that must have ended before, once"},
		{`"awaited_by":[{"run":"c"`, `"awaited_by":[{"run":"d"`, "an end for the runs that wait for it"},
		{`"by":"sad","ended":{"code":"error"`, `"by":"sad","ended":{"code":"budget"`, "the end of the run in an answer to run sad"},
		{`{"by":"c","run":"b"`, `{"by":"b","run":"b"`, "a task of run b that begins after the run"},
	}}.audited(t)
}

// TestRecordedPredecessorsWithLimit: a run asks for its grant once the others have ended.
func TestRecordedPredecessorsWithLimit(t *testing.T) {
	lives{
		begin: func(*testing.T) (*fleet, flow.Workflow) {
			return &fleet{limit: &run.Limit{Key: []string{"input.key"}, Concurrency: 1}}, flow.Func(graph)
		},
		ends: run.Succeeded, runs: 7,
		forgeries: []forgery{{`"kind":"run.granted","schema":1`, `"kind":"vendor.note","schema":1`, "run.granted with the end of the last run"}},
	}.audited(t)
}
