package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// crowd is a workflow that starts itself three times with one key and once with another one.
func crowd(ctx context.Context, s session.Session) (session.Session, error) {
	if i, _ := flow.RunInfo(ctx); i.Input != nil {
		return s.With(session.AssistantText("done")), flow.Sleep(ctx, time.Second)
	}
	var all []flow.Started
	for n, key := range []string{"acme", "acme", "acme", "globex"} {
		one, err := flow.Start(ctx, flow.Task{Workflow: "w", ID: run.ID(fmt.Sprint("one-", n)), Input: json.RawMessage(fmt.Sprintf(`{"key":%q}`, key)), Priority: int64(n)})
		if err != nil {
			return s, err
		}
		all = append(all, one)
		if err := flow.Sleep(ctx, time.Millisecond); err != nil { // the requests come one after the other
			return s, err
		}
	}
	for _, one := range all {
		if end, err := one.Result(ctx, 0); err != nil || end.Err != nil {
			return s, fmt.Errorf("%w: %w", err, end.Err)
		}
	}
	return s.With(session.AssistantText("all done")), nil
}

// TestRecordedLimits: the auditor accepts runs with a limit whose process dies at each
// append, and finds forged grants, requests and releases.
func TestRecordedLimits(t *testing.T) {
	lives{
		begin: func(*testing.T) (*fleet, flow.Workflow) {
			return &fleet{limit: &run.Limit{Key: []string{"input.key"}, Concurrency: 1, Rate: 2, Per: time.Hour}}, flow.Func(crowd)
		},
		ends: run.Succeeded, runs: 5,
		forgeries: []forgery{
			{`"kind":"limit.released","schema":1,"time":946684801000},{`, `"kind":"vendor.note","schema":1,"time":946684801000},{`, "at most 1 runs that hold a grant, found 2"},
			{`"kind":"limit.decided","schema":1,"time":946688400000`, `"kind":"limit.decided","schema":1,"time":946688399999`, "at most 2 grants within 3600000 ms"},
			{`"open":2,"run":"one-2","session":"880203da755938597c61-1-0"`, `"open":2,"run":"one-1","session":"5f1fa0f3c7571efe0d58-1-0"`, "the run with the highest priority to go first"},
			{`"open":3,"priority":2,"run":"one-2"`, `"open":3,"priority":2,"run":"ghost"`, "run ghost: want run.submitted of it"},
			{`"run":"one-3","starter"`, `"run":"one-9","starter"`, "a release by a run that has ended"},
			{`{"data":{"run":"one-0","workflow":"w"},"kind":"run.granted"`, `{"data":{"attempt":1,"epoch":1,"home":{"session":"31911c3ab86a79157e83-1-0","tenant":"default"},"incarnation":"i1","run":"one-0","workflow":"w"},"kind":"run.claimed"`, "run.granted before a run with a limit is claimed"},
			{`"open":1,"run":"one-0","session"`, `"open":1,"run":"one-7","session"`, "a limit.decided of it in 3282125d2fd172f765ab-1-0"},
			{`"open":1,"run":"one-1","session"`, `"open":4,"run":"one-1","session"`, "1 runs that wait or hold, found 4"},
		},
	}.audited(t)
}
