package translate

import (
	"time"

	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// RefusedResult is the result of a rejected task, which has no commits.
func RefusedResult(id run.ID, workflow string, e wire.Error, at time.Time) messages.Result {
	return messages.Result{Schema: messages.Schema, Run: id, State: run.Failed, Workflow: workflow, Code: e.Code, Error: e.Text, EndedMS: at.UnixMilli()}
}

// Refused returns the event about a rejected task.
func Refused(t session.Tenant, id run.ID, workflow string, e wire.Error) messages.Record {
	ev := untaken(messages.KindRefused, t, id, workflow, "task refused: ", e)
	ev.State = string(run.Failed)
	return ev
}

// TaskHeld returns the event about a task that waits.
func TaskHeld(t session.Tenant, id run.ID, workflow string, e wire.Error) messages.Record {
	return untaken(messages.KindHeld, t, id, workflow, "task waits: ", e)
}

func untaken(kind messages.Kind, t session.Tenant, id run.ID, workflow, what string, e wire.Error) messages.Record {
	summary := what + e.Text
	if r := []rune(summary); len(r) > lineage.MaxSummary {
		summary = string(r[:lineage.MaxSummary-1]) + "…"
	}
	return messages.Record{
		Schema: lineage.Schema, Kind: kind, Tenant: t, Run: id, Workflow: workflow,
		Code: e.Code, Reason: e.Text, Summary: summary,
	}
}
