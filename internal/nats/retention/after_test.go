package retention

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestAfterArchived: a run begins after one whose log is archived by the other's result. Once a
// prune has removed the result it fails, unless any end is enough.
func TestAfterArchived(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.done("agent", messages.Task{ID: "good"})
		w.begin("fail", messages.Task{ID: "bad"})
		if r := w.result("bad"); r.State != run.Failed {
			t.Fatalf("%+v", r)
		}
		time.Sleep(keep)
		expect := func(id run.ID, state run.State, code run.Code, text string) {
			t.Helper()
			if r := w.result(id); r.State != state || r.Code != code || !strings.Contains(r.Error, text) {
				t.Errorf("run %s is %s %s %q, want %s %s %q", id, r.State, r.Code, r.Error, state, code, text)
			}
		}
		w.cutOff("purge 0")
		if got := w.stored(); len(got) != 2 {
			t.Fatalf("results of %q are stored", got)
		}
		w.begin("agent", messages.Task{ID: "kept", After: []run.ID{"good"}, AfterAny: []run.ID{"bad"}})
		w.begin("agent", messages.Task{ID: "kept-bad", After: []run.ID{"good", "bad"}})
		expect("kept", run.Succeeded, "", "")
		expect("kept-bad", run.Failed, run.CodeAfter, "run bad, which must succeed before this run begins, has failed (error)")
		w.prune(w.options())
		if _, err := w.client.Runs.Result(t.Context(), "good"); !errors.Is(err, run.ErrPruned) {
			t.Fatalf("the result of a run that was pruned: %v", err)
		}
		w.begin("agent", messages.Task{ID: "any", AfterAny: []run.ID{"good", "bad"}})
		w.begin("agent", messages.Task{ID: "none", After: []run.ID{"good"}})
		expect("any", run.Succeeded, "", "")
		expect("none", run.Failed, run.CodeAfter, "run good, which must succeed before this run begins, has failed (pruned)")
		w.audited()
	})
}
