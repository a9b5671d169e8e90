package run_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestArchive fences a session: nothing is taken after it, with the reason,
// until it is lifted.
func TestArchive(t *testing.T) {
	log := &session.MemoryLog{}
	store := run.Direct(log, nil)
	home := session.Key{Tenant: "acme", ID: "s1"}
	task := func(id run.ID) run.Claim {
		return run.Claim{Session: home, Home: home, Run: id, Task: &run.Task{ID: id, Workflow: "w", Session: home}, Open: session.Opening{Kind: session.OpenLeaf}}
	}
	archive := run.Signal{To: home, Archive: &session.Archival{By: "ana", File: "a.json"}}
	restore := run.Signal{To: home, Restore: &session.Restoration{By: "ana"}}
	want := func(what string, err, is error, text string) {
		t.Helper()
		if !errors.Is(err, is) || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v, want %v with %q", what, err, is, text)
		}
	}
	want("no session", store.Apply(t.Context(), archive), session.ErrNotFound, "s1")
	g, err := store.Claim(t.Context(), task("r1"))
	if err != nil {
		t.Fatal(err)
	}
	want("an open run", store.Apply(t.Context(), archive), run.ErrState, "r1 is running")
	want("nothing to lift", store.Apply(t.Context(), restore), run.ErrState, "not archived")
	ended, err := run.NewEvent(run.KindEnded, run.Ended{Attempt: g.Attempt, Run: "r1", State: run.Failed, Workflow: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Commit(t.Context(), run.Batch{Session: home, Run: "r1", Attempt: g.Attempt, Path: "end", Events: []session.Event{ended}}); err != nil {
		t.Fatal(err)
	}
	apart := run.Signal{To: home, Quarantine: &run.Quarantined{Reason: "odd"}}
	if err := store.Apply(t.Context(), apart); err != nil {
		t.Fatal(err)
	}
	want("in quarantine", store.Apply(t.Context(), archive), run.ErrState, "release it")
	apart.Quarantine.Released = true
	if err := store.Apply(t.Context(), apart); err != nil {
		t.Fatal(err)
	}
	if err := store.Apply(t.Context(), archive); err != nil {
		t.Fatal(err)
	}

	// By this writer, and by one that folds the log.
	for _, store := range []run.Store{store, run.Direct(log, &run.DirectOptions{Incarnation: "other"})} {
		_, err = store.Claim(t.Context(), task("r2"))
		want("a run", err, session.ErrArchived, "rath prune --older-than AGE --keep acme=forever")
		if strings.Contains(err.Error(), "import") {
			t.Errorf("nobody has written the file yet: %v", err)
		}
		err = store.Apply(t.Context(), run.Signal{To: home, Received: &run.SignalReceived{Kind: run.Message, Text: "hi"}})
		want("a message", err, session.ErrArchived, "rath prune")
		want("again", store.Apply(t.Context(), archive), session.ErrArchived, "rath prune")
		if run.CodeOf(err) != run.CodeArchived || !errors.Is(run.CodeArchived.Err("x"), session.ErrArchived) {
			t.Errorf("its code is %q", run.CodeOf(err))
		}
		// What the log says can be read.
		if v, err := run.NewValues(log).At(t.Context(), session.Ref{Key: home}); err != nil || v.Archived() == nil {
			t.Errorf("archived %v, %v", v.Archived(), err)
		}
		want("where it ends", run.NewValues(log).Archived(t.Context(), home), session.ErrArchived, "rath prune")
	}
	if err := store.Apply(t.Context(), restore); err != nil {
		t.Fatal(err)
	}
	if g, err := store.Claim(t.Context(), task("r3")); err != nil || g.State != run.Running {
		t.Errorf("after it was lifted: %+v, %v", g, err)
	}
	if err := run.NewValues(log).Archived(t.Context(), home); err != nil {
		t.Error(err)
	}
}
