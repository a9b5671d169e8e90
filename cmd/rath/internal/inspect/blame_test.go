package inspect

import (
	"context"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/commitlog"
	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/view"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestBlameCalledWorkflow: a line that a call of a workflow brought is that of the step
// inside of it, and what that step touched is in the session of the caller, too.
func TestBlameCalledWorkflow(t *testing.T) {
	var log commitlog.Memory
	blobs := blob.NewMemory()
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	put := func(ctx context.Context, s session.Session, path, text string) (session.Session, error) {
		s, _, err := flow.Call(ctx, s, write, map[string]string{"path": path, "content": text})
		return s, err
	}
	worker := flow.WorkflowTool("worker", "Works.", flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return put(ctx, s, "note.txt", "caller\ncalled\n")
	}))
	r := &inprocess.Runner{
		Log: &log, Blobs: blobs, Dir: t.TempDir(),
		Sandboxes: map[string]sandbox.Backend{"local": scripted.New(&scripted.Options{Name: "local"})}, Unsafe: true,
	}
	s, err := r.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := put(ctx, s.To("local", ""), "note.txt", "caller\n")
		if err == nil {
			s, _, err = flow.Call(ctx, s, worker, map[string]string{"input": "called"})
		}
		return s, err
	}), session.New(session.UserText("go")))
	if err != nil {
		t.Fatal(err)
	}
	g := lineage.NewGraph()
	for _, k := range log.Keys() {
		for e, err := range log.Read(t.Context(), k, commitlog.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			records, err := lineage.Derive(e)
			if err != nil {
				t.Fatal(err)
			}
			g.Add(records...)
		}
	}
	heads := func(p lineage.Ref) ([]lineage.Record, error) {
		return g.Heads(session.Key{Tenant: s.Key().Tenant, ID: p.Session}, p.Version)
	}
	changes, err := g.Heads(s.Key(), 0)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := view.Blame(t.Context(), blobs, changes, "note.txt", heads)
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), err)
	}
	if l := lines[0]; l.Text != "caller" || l.By.Session != s.Key().ID {
		t.Errorf("%q is by %+v", l.Text, l.By)
	}
	if l := lines[1]; l.Text != "called" || l.By.Session == s.Key().ID || l.By.Tool != tool.WriteWorkspaceFile {
		t.Errorf("%q is by %+v", l.Text, l.By)
	}
	by := lines[1].By
	impact, err := g.ImpactOfStep(s.Key().Tenant, by.Run, by.Step)
	if err != nil {
		t.Fatal(err)
	}
	if to := impact.Sessions; len(to) != 2 || to[1].Session != s.Key().ID || to[1].Via != lineage.Tool || to[1].Parent != by.Session {
		t.Errorf("it is in the sessions %+v", to)
	}
}
