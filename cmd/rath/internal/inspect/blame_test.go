package inspect

import (
	"context"
	"slices"
	"testing"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/evidence/view"
	"github.com/rathcluster/rath/internal/testkit/must"
	llmscripted "github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/scripted"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestBlameCalledWorkflow: a line that a called workflow wrote is attributed to the
// step inside of it, and the files of that step are in the session of the caller, too.
func TestBlameCalledWorkflow(t *testing.T) {
	blobs := blob.NewMemory()
	write, _ := tool.ByName(tool.WriteWorkspaceFile)
	put := func(ctx context.Context, s session.Session, path, text string) (session.Session, error) {
		s, _, err := flow.CallTool(ctx, s, write, map[string]string{"path": path, "content": text})
		return s, err
	}
	worker := flow.WorkflowTool("worker", "Works.", flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return put(ctx, s, "note.txt", "caller\ncalled\n")
	}))
	r := &inprocess.Runner{
		Blobs: blobs, Dir: t.TempDir(),
		Sandboxes: map[string]sandbox.Backend{"local": scripted.New(&scripted.Options{Name: "local"})}, Unsafe: true,
	}
	s, err := r.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := put(ctx, s.To("local", ""), "note.txt", "caller\n")
		if err == nil {
			s, _, err = flow.CallTool(ctx, s, worker, map[string]string{"input": "called"})
		}
		return s, err
	}), session.New(session.UserText("go")))
	must.Do(t, err)
	g := graphIn(t, r, s.Key())
	changes, err := g.Heads(s.Key(), 0)
	must.Do(t, err)
	lines, err := view.Blame(t.Context(), blobs, g, changes, "note.txt")
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
	must.Do(t, err)
	if to := impact.Sessions; len(to) != 2 || to[1].Session != s.Key().ID || to[1].Via != messages.KindTool || to[1].Parent != by.Session {
		t.Errorf("it is in the sessions %+v", to)
	}
}

// TestBlameKeptBeside: in a file that a merge kept beside another branch's, a line
// belongs to the agent that wrote it in its branch, and no directory was copied.
func TestBlameKeptBeside(t *testing.T) {
	blobs := blob.NewMemory()
	edit, _ := tool.ByName(tool.WriteWorkspaceFile)
	script, err := llmscripted.Parse("model", []byte(`
-- write --
system: You are left
not result: write_workspace_file
call: write_workspace_file {"path":"both.txt","content":"shared\nfrom left\n"}

-- write beside it --
system: You are right
not result: write_workspace_file
call: write_workspace_file {"path":"both.txt","content":"shared\nfrom right\n"}

-- done --

done
`))
	must.Do(t, err)
	model, err := llmscripted.New(script, nil)
	must.Do(t, err)
	r := &inprocess.Runner{
		Blobs: blobs, Dir: t.TempDir(), Models: model, Model: "m",
		Sandboxes: map[string]sandbox.Backend{"local": scripted.New(&scripted.Options{Name: "local"})}, Unsafe: true,
	}
	s, err := r.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var branches []flow.Branch
		for _, name := range []string{"left", "right"} {
			branches = append(branches, flow.Branch{Name: name, Workflow: &flow.Agent{Name: "agent-" + name, Prompt: "You are " + name + ".", Tools: []tool.Tool{edit}}})
		}
		j, err := flow.FanOut(ctx, s.To("local", ""), branches, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.KeepBoth, nil))
	}), session.New(session.UserText("go")))
	must.Do(t, err)
	g := graphIn(t, r, s.Key())
	changes, err := g.Heads(s.Key(), 0)
	must.Do(t, err)
	for path, want := range map[string]string{"both.txt": "left", "both.txt.right": "right"} {
		lines, err := view.Blame(t.Context(), blobs, g, changes, path)
		if err != nil || len(lines) != 2 {
			t.Fatalf("%s has %d lines: %v", path, len(lines), err)
		}
		for _, l := range lines {
			var reason view.Reason
			reason.ChangedBy(g, s.Key().Tenant, l.By)
			if reason.Agent != "agent-"+want || reason.Tool != tool.WriteWorkspaceFile {
				t.Errorf("%q of %s is made by %q with %q (%s), did %q", l.Text, path, reason.Agent, reason.Tool, reason.Actor, reason.Did)
			}
		}
	}

	// The merge put the file there.
	files, err := view.FileChanges(t.Context(), blobs, changes)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d changes of files: %v", len(files), err)
	}
	for _, f := range files {
		var reason view.Reason
		reason.ChangedBy(g, s.Key().Tenant, f.By)
		if f.By.Kind != messages.KindMerged || reason.Actor != "" || reason.Did != f.By.Summary {
			t.Errorf("%s is made by %q: %q", f.Path, reason.Actor, reason.Did)
		}
	}
}

// TestBlameCallBeforeItsTurn: the row of a call waits for the rows of earlier calls;
// the lines that the call wrote before then are its own.
func TestBlameCallBeforeItsTurn(t *testing.T) {
	blobs := blob.NewMemory()
	edit, _ := tool.ByName(tool.WriteWorkspaceFile)
	script, err := llmscripted.Parse("model", []byte(`
-- both --
not result: write_workspace_file
call: worker {"input":"go"}
call: write_workspace_file {"path":"note.txt","content":"mine\n"}

-- done --

done
`))
	must.Do(t, err)
	model, err := llmscripted.New(script, nil)
	must.Do(t, err)
	r := &inprocess.Runner{
		Blobs: blobs, Dir: t.TempDir(), Models: model, Model: "m",
		Sandboxes: map[string]sandbox.Backend{"local": scripted.New(&scripted.Options{Name: "local"})}, Unsafe: true,
	}
	worker := flow.WorkflowTool("worker", "Works.", flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { return s, nil }))
	s, err := r.Run(t.Context(), &flow.Agent{Name: "writer", Tools: []tool.Tool{worker, edit}}, session.New(session.UserText("go")).To("local", ""))
	must.Do(t, err)
	g := graphIn(t, r, s.Key())
	changes, err := g.Heads(s.Key(), 0)
	must.Do(t, err)
	lines, err := view.Blame(t.Context(), blobs, g, changes, "note.txt")
	if err != nil || len(lines) != 1 {
		t.Fatalf("%d lines: %v", len(lines), err)
	}
	var reason view.Reason
	if reason.ChangedBy(g, s.Key().Tenant, lines[0].By); reason.Agent != "writer" || reason.Tool != tool.WriteWorkspaceFile {
		t.Errorf("%q is made by %q with %q (%s), did %q", lines[0].Text, reason.Agent, reason.Tool, reason.Actor, reason.Did)
	}
}

// graphIn returns the graph of a session with all that its records lead to.
func graphIn(t *testing.T, r *inprocess.Runner, root session.Key) *lineage.Graph {
	t.Helper()
	g := lineage.NewGraph()
	seen := map[session.ID]bool{root.ID: true}
	for open := []session.ID{root.ID}; len(open) > 0; open = open[1:] {
		records := must.Get(r.Lineage(t.Context(), session.Key{Tenant: root.Tenant, ID: open[0]}))(t)
		g.Add(records...)
		for _, rec := range records {
			for _, other := range slices.Concat(rec.Branches, rec.Parents) {
				if !seen[other.Session] {
					seen[other.Session] = true
					open = append(open, other.Session)
				}
			}
		}
	}
	return g
}
