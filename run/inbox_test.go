package run

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/session"
)

// TestFullInbox: words of the user never keep the branches of a fan-out, or the
// answer to a question, from getting through.
func TestFullInbox(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000).UTC()
	log := &session.MemoryLog{}
	k := session.Key{Tenant: "t", ID: "home"}
	w := NewWriter(k, "node", NewValues(log).Resolver(t.Context()))
	commit := func() {
		t.Helper()
		c, ok := w.Take()
		if !ok {
			t.Fatal("nothing is staged")
		}
		at, err := log.Append(t.Context(), w.At(), c)
		if err != nil {
			t.Fatal(err)
		}
		w.Committed(at)
	}
	if _, err := w.Claim(Claim{Session: k, Home: k, Run: "r", Task: &Task{ID: "r", Workflow: "w", Session: k}}, now); err != nil {
		t.Fatal(err)
	}
	commit()
	wait := Wait{Kind: WaitBranches, Path: "0.gather"}
	for i := range MaxBranches {
		wait.Branches = append(wait.Branches, session.ID(fmt.Sprint("b", i)))
	}
	waiting := event(KindWaiting, RunWaiting{Attempt: 1, For: []Wait{wait}, Run: "r"})
	if _, err := w.Commit(Batch{Session: k, Run: "r", Attempt: 1, Events: []session.Event{waiting}}, now); err != nil {
		t.Fatal(err)
	}
	commit()
	say := func() error {
		return w.Signal(Signal{To: k, Run: "r", Received: &SignalReceived{Kind: Message, Text: "x"}}, now)
	}
	for range MaxInbox {
		if err := say(); err != nil {
			t.Fatal(err)
		}
		commit()
	}
	if err := say(); !errors.Is(err, ErrBusy) {
		t.Errorf("a message more than the inbox holds: %v", err)
	}
	for _, id := range wait.Branches {
		end := BranchEnd{Link: session.Link{Ref: session.Ref{Key: session.Key{Tenant: "t", ID: id}}, Seq: 1}, State: Succeeded}
		if err := w.Signal(Signal{To: k, Run: "r", Received: &SignalReceived{ID: string(id), Kind: Report, Path: wait.Path, Branch: &end}}, now); err != nil {
			t.Fatalf("the report of branch %s: %v", id, err)
		}
		commit()
	}
	if r := w.RunState().Run("r"); r.State != Queued {
		t.Errorf("all branches have reported and the run is %s", r.State)
	}
}
