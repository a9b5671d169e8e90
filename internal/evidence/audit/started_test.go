package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// starter is a workflow that starts itself twice: one run fails, and one's end is not read.
func starter(ctx context.Context, s session.Session) (session.Session, error) {
	i, _ := flow.RunInfo(ctx)
	switch string(i.Input) {
	case `"bad"`:
		return s, errors.New("no more")
	case `"good"`:
		return s.With(session.AssistantText("done")), nil
	}
	bad, err := flow.Start(ctx, flow.Task{Workflow: "w", Input: json.RawMessage(`"bad"`)})
	if err != nil {
		return s, err
	}
	if _, err := flow.Start(ctx, flow.Task{Workflow: "w", ID: "mine", Input: json.RawMessage(`"good"`)}); err != nil {
		return s, err
	}
	if end, err := bad.Result(ctx, 0); err != nil || end.State != run.Failed {
		return s, errors.Join(errors.New("it did not fail"), err)
	}
	return s.With(session.AssistantText("all done")), nil
}

// TestRecordedStarts: the auditor accepts a run that starts others and whose process dies
// at each append, and finds what its log and theirs disagree about.
func TestRecordedStarts(t *testing.T) {
	lives{
		begin: fresh(starter),
		ends:  run.Succeeded, runs: 3,
		forgeries: []forgery{
			{`"value":"{\"run\":\"mine\"}"`, `"value":"{\"run\":\"yours\"}"`, "run.start of mine in the batch of step.done 1"},
			{`"started_by":{"run":"r","session":"home-1-0","step":"1"}`, `"started_by":{"run":"r","session":"home-1-0","step":"7"}`, "run.start of it at step 7 of run r"},
			{`"ended":{"code":"error"`, `"ended":{"code":"budget"`, "as its run.ended has it"},
			{`"kind":"ended"`, `"kind":"timer"`, "a question at step"},
		},
	}.audited(t)
}
