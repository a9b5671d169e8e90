package run_test

import (
	"testing"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestAround: a branch sees the steps of the run around it, and not how that one
// began to end.
func TestAround(t *testing.T) {
	var log session.MemoryLog
	s := run.Direct(&log, nil)
	k := session.Key{Tenant: session.DefaultTenant, ID: "home"}
	task := run.Task{ID: "r", Workflow: "w", Session: k}
	g, err := s.Claim(t.Context(), run.Claim{Session: k, Home: k, Run: task.ID, Task: &task, Open: session.Opening{Kind: session.OpenLeaf}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []run.Path{"0", "end.branches"} {
		e, err := run.NewEvent(run.KindDone, run.StepCompleted{Run: "r", Attempt: g.Attempt, Path: p, Kind: run.StepDo})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Commit(t.Context(), run.Batch{Session: k, Run: "r", Attempt: g.Attempt, Path: p, Events: []session.Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	around, err := run.NewValues(&log).Recorded(t.Context(), k, "r")
	if err != nil || !around.Journal.Has("end.branches") {
		t.Fatalf("%v", err)
	}
	own := (&run.RunState{}).JournalOf("branch")
	own.Around(around.Journal)
	if !own.Has("0") || own.Has("end.branches") || !around.Journal.Has("end.branches") {
		t.Errorf("it has %d steps", own.Len())
	}
}
