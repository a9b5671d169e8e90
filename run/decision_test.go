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
