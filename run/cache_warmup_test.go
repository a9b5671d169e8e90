package run

import (
	"testing"

	"github.com/rathcluster/rath/session"
)

// TestHeldInSnapshot: who goes on from a snapshot knows of the branches that
// wait for the first one, or that they wait no more.
func TestHeldInSnapshot(t *testing.T) {
	h := newTheatre(t, 0)
	k := h.keys[0]
	do := func(decide func(w *StateMachine) error) {
		t.Helper()
		if err := h.do(k, decide); err != nil {
			t.Fatal(err)
		}
	}
	restored := func(want bool) {
		t.Helper()
		if err := save(t.Context(), h.log, h.writer(k)); err != nil {
			t.Fatal(err)
		}
		w, err := Load(t.Context(), h.log, NewValues(h.log), k, "reader")
		if err != nil || w.SinceSnapshot() != 0 {
			t.Fatalf("the snapshot is not used: %v", err)
		}
		h.same(h.writer(k), w, "the snapshot")
		if err := w.Signal(Signal{To: k, Run: "r", Received: &SignalReceived{Kind: Warm, Path: "0.gather"}}, h.now); err != nil {
			t.Fatal(err)
		}
		if c, ok := w.Take(); ok != want || ok && c.Events[len(c.Events)-1].Kind != KindSpread {
			t.Errorf("the first answer appends %+v, want something: %v", c.Events, want)
		}
	}
	do(func(w *StateMachine) error {
		_, err := w.Claim(Claim{
			Session: k, Home: k, Run: "r", Task: &Task{ID: "r", Workflow: "w", Session: k}, Open: session.Opening{Kind: session.OpenLeaf}, Events: []session.Event{h.chunk()},
		}, h.now)
		return err
	})
	f := FanOut{Ancestors: []Ancestor{{Run: "r", Session: k.ID}}, Path: "0", Root: k.ID, Run: "r", Warm: true, Workflow: "w", Branches: []FanOutBranch{{Name: "a", Session: "a"}, {Name: "b", Session: "b"}}}
	f.Base, _ = h.writer(k).Session().Link()
	wait := RunWaiting{Attempt: 1, Run: "r", For: []Wait{{Branches: []session.ID{"a", "b"}, Kind: WaitBranches, Path: "0.gather"}}}
	do(func(w *StateMachine) error {
		_, err := w.Commit(h.batch(w, "r", "0", event(KindFanOut, f), event(KindDone, StepCompleted{Attempt: 1, Input: "i", Kind: StepFanOut, Path: "0", Run: "r"}), event(KindWaiting, wait)), h.now)
		return err
	})
	restored(true)
	do(func(w *StateMachine) error {
		return w.Signal(Signal{To: k, Run: "r", Received: &SignalReceived{Kind: Warm, Path: "0.gather"}}, h.now)
	})
	restored(false)
}
