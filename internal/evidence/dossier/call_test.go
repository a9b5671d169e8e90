package dossier_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/evidence/dossier"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestCalledWorkflow checks that the evidence of a run includes the work of a tool call by a
// workflow, with a session that begins with the caller's files and none of its rows, and
// the session of a summary that keeps its latest rows. The work's changes of files are
// attributed to the call, which names the work's session.
func TestCalledWorkflow(t *testing.T) {
	w := newWorld(t)
	worker := flow.WorkflowTool("worker", "Works.", flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return put(ctx, say(ctx, s, "try"), "notes.md", "called\n"), nil
	}))
	var f *dossier.Facts
	synctest.Test(t, func(t *testing.T) {
		state := w.drive(t.Context(), func(ctx context.Context, s session.Session) (session.Session, error) {
			s = put(ctx, say(ctx, s.To("local", "testdata/work"), "go"), "notes.md", "first\n")
			s, _, err := flow.CallTool(ctx, s, worker, map[string]string{"input": "write"})
			if err != nil {
				return s, err
			}
			s = s.With(session.UserText(strings.Repeat("long ", 400)))
			return (&flow.Agent{Name: "full", MaxContext: 400}).Forward(ctx, s)
		}, func(journal.Wait) journal.SignalReceived { return journal.SignalReceived{} })
		if state != run.Succeeded {
			t.Fatalf("the run ended as %s", state)
		}
		synctest.Wait()
		f = w.check(fixRun, home)
	})
	roles := map[string]int{}
	for _, s := range f.Sessions {
		roles[s.Role]++
		if s.Role == "work of a tool call" && (s.State != session.ClosedMerged || s.From == "") {
			t.Errorf("the work is told as %+v", s)
		}
	}
	if c := f.Changes.Files; len(c) != 1 || c[0].Path != "notes.md" || len(c[0].Steps) != 2 {
		t.Fatalf("the changes of files are %+v", f.Changes)
	}
	by := f.Steps[f.Changes.Files[0].Steps[1]-1]
	if by.Kind != journal.StepTool || !strings.HasPrefix(by.Text, "worker by ") || by.Before.IsZero() || by.After != f.Changes.After {
		t.Errorf("the file was changed at last by %+v", by)
	}
	if roles["work of a tool call"] != 1 || roles["summary"] != 1 || len(f.Branches) != 1 || f.Branches[0].Name != "worker-0" {
		t.Errorf("sessions %v, branches %+v", roles, f.Branches)
	}
}
