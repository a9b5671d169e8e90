package run_test

import (
	"errors"
	"testing"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestUnknownDecision: a decision that is none is the answer to whoever sent it.
// Without a code of its own it would be taken for the silence of the session's
// holder.
func TestUnknownDecision(t *testing.T) {
	s := run.Direct(&session.MemoryLog{}, nil)
	k := session.Key{Tenant: session.DefaultTenant, ID: "home"}
	task := run.Task{ID: "r", Workflow: "w", Session: k}
	g, err := s.Claim(t.Context(), run.Claim{Session: k, Home: k, Run: task.ID, Task: &task, Open: session.Opening{Kind: session.OpenLeaf}})
	if err != nil {
		t.Fatal(err)
	}
	e, err := run.NewEvent(run.KindReview, run.Review{Attempt: g.Attempt, Code: run.CodeReview, Reason: "cut off", Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), run.Batch{Session: k, Run: "r", Attempt: g.Attempt, Events: []session.Event{e}}); err != nil {
		t.Fatal(err)
	}
	err = s.Apply(t.Context(), run.Signal{To: k, Run: "r", Resolve: &run.Resolved{Decision: "perhaps"}})
	if !errors.Is(err, run.ErrMalformed) || run.CodeOf(err) != run.CodeMalformed {
		t.Errorf("%v has the code %q", err, run.CodeOf(err))
	}
}

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
