package journal_test

import (
	"testing"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestAround: a branch sees the steps of the enclosing run, except those of its end.
func TestAround(t *testing.T) {
	var log commitlog.Memory
	s := journal.NewStore(&log, nil)
	k := session.Key{Tenant: session.DefaultTenant, ID: "home"}
	task := journal.Task{ID: "r", Workflow: "w", Session: k}
	g, err := s.Claim(t.Context(), journal.Claim{Session: k, Home: k, Run: task.ID, Task: &task, Open: session.Opening{Kind: session.OpenLeaf}})
	must.Do(t, err)
	for _, p := range []run.Path{"0", "end.branches"} {
		e := must.Get(journal.NewEvent(journal.KindStepCompleted, journal.StepCompleted{Run: "r", Attempt: g.Attempt, Path: p, Kind: journal.StepDo}))(t)
		must.Get(s.Commit(t.Context(), journal.Batch{Session: k, Run: "r", Attempt: g.Attempt, Path: p, Events: []session.Event{e}}))(t)
	}
	around, err := journal.NewValues(&log).Recorded(t.Context(), k, "r")
	if err != nil || !around.Journal.Has("end.branches") {
		t.Fatalf("%v", err)
	}
	own := (&journal.RunState{}).JournalOf("branch")
	own.MergeEnclosing(around.Journal)
	if !own.Has("0") || own.Has("end.branches") || !around.Journal.Has("end.branches") {
		t.Errorf("it has %d steps", own.Len())
	}
}
