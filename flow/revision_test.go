package flow_test

import (
	"context"
	"errors"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestOtherRevisionGoesOn: code that does not match the journal gives the run
// back while a node offers the code that it is of, which goes on with it.
func TestOtherRevisionGoesOn(t *testing.T) {
	var w world
	cut, cancel := context.WithCancelCause(t.Context())
	ran := map[string]int{}
	code := func(notes string, after func()) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			for _, name := range []string{notes, "publish"} {
				if _, err := flow.Do(ctx, name, func(context.Context) (int, error) { ran[name]++; return 1, nil }); err != nil {
					return s, err
				}
				after()
			}
			return s, nil
		}
	}
	begin := func(revision string, f flow.Func, elsewhere bool) *flow.Execution {
		t.Helper()
		rt := w.runtime(nil)
		rt.Offered = func(_ context.Context, workflow, revision string) bool {
			return elsewhere && workflow == "w" && revision == "1"
		}
		ex, err := rt.Begin(t.Context(), flow.Registration{Name: "w", Revision: revision, New: func() flow.Workflow { return f }}, run.Task{
			ID: "r", Workflow: "w", Session: home, Resume: w.n > 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		return ex
	}
	if state, err := begin("1", code("notes", func() { cancel(run.ErrShutdown) }), false).Forward(cut); state != run.Queued {
		t.Fatalf("state %s: %v", state, err)
	}
	state, err := begin("2", code("other notes", func() {}), true).Forward(t.Context())
	if state != run.Queued || !errors.Is(err, run.ErrMismatch) {
		t.Fatalf("the other code: state %s: %v", state, err)
	}
	all := facts[run.Released](t, &w, run.KindReleased)
	if last := all[len(all)-1]; last.Revision != "1" || last.Step != "0" || last.Attempt != 2 {
		t.Errorf("it gives the run back as %+v", last)
	}
	if state, err := begin("1", code("notes", func() {}), true).Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("the code that it is of: state %s: %v", state, err)
	}
	if ran["notes"] != 1 || ran["publish"] != 1 || ran["other notes"] != 0 {
		t.Errorf("the steps ran %v", ran)
	}
}
