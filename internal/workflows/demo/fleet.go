package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// FleetName is the name that the workflow of `rath demo --nodes` is registered
// under.
const FleetName = "demo-fleet"

// Coders are the branches of the workflow: each mends the repository in its own
// way, on any node that takes it.
var Coders = []string{"careful", "hasty", "radical"}

// FleetRegistration offers the workflow of `rath demo --nodes`: one researcher,
// three coders on three nodes, and the first patch whose tests pass is adopted.
// root is the directory for the repositories, the same for all nodes.
func FleetRegistration(root string) flow.Registration {
	return flow.Registration{
		Name: FleetName, Revision: Revision,
		Description: "Mends a small repository in three ways at once, on several nodes; the best one is adopted.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			p, dir, err := settings(s, root)
			if err != nil {
				return nil, err
			}
			return &fleet{base: New(p), dir: dir, provider: p}, nil
		},
	}
}

// fleet fans out over the coders.
type fleet struct {
	base     *Workflow
	dir      string
	provider llm.Provider
}

// Forward implements flow.Workflow.
func (w *fleet) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	research := *w.base.research
	research.Memory = ""
	s, err := research.Forward(ctx, s.With(session.UserText(Input)).To("local", w.dir))
	if err != nil {
		return s, err
	}
	var branches []flow.Branch
	for _, name := range Coders {
		branches = append(branches, flow.Branch{Name: name, Workflow: w.branch(name)})
	}
	j, err := flow.FanOut(ctx, s, branches, nil)
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.PickBest(best))
}

// branch is the work of one coder: a patch, its tests, and a verdict.
func (w *fleet) branch(name string) flow.Workflow {
	code := &flow.Agent{
		Name: name, Provider: w.provider, Tools: w.base.code.Tools,
		Prompt: "You are the " + name + " coder. Mend what the researcher found: read a file before you replace it. Do not run the tests. End with one sentence about what you changed.",
	}
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := code.Forward(ctx, s)
		if err != nil {
			return s, err
		}
		if s, _, err = flow.CallTool(ctx, s, tests(), map[string]string{"cmd": "sh test.sh"}); err != nil {
			return s, err
		}
		return w.base.verify.Forward(ctx, s)
	})
}

// best takes the first branch that the verifier accepted, and gives each the
// verifier's reason.
func best(_ context.Context, j *flow.Joined) (int, []string, error) {
	taken := -1
	reasons := make([]string, len(j.Outcomes))
	for i, o := range j.Outcomes {
		if o.State != run.Succeeded {
			continue
		}
		accepted, reason, _ := judge(o.Session.Text())
		reasons[i] = reason
		if accepted && taken < 0 {
			taken = i
		} else if accepted {
			reasons[i] = "as good as " + j.Outcomes[taken].Name
		}
	}
	if taken < 0 {
		return 0, nil, errors.New("no patch passes: " + strings.Join(reasons, "; "))
	}
	return taken, reasons, nil
}

// FleetResult returns the digest of the tree that the workflow produces, however often a
// node dies: the repository with the careful coder's patch.
func FleetResult(ctx context.Context) (_ blob.Digest, err error) {
	model, err := Model(0)
	if err != nil {
		return blob.Digest{}, err
	}
	careful, err := model.Complete(ctx, &llm.Request{Messages: []llm.Message{{Role: llm.System, Text: "You are the careful coder"}}}, nil)
	if err != nil {
		return blob.Digest{}, err
	}
	if len(careful.Calls) == 0 {
		return blob.Digest{}, fmt.Errorf("demo: the careful coder answers %q and changes nothing", careful.Text)
	}
	dir, err := os.MkdirTemp("", "rath-demo-")
	if err != nil {
		return blob.Digest{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := Unpack(dir); err != nil {
		return blob.Digest{}, err
	}
	for _, c := range careful.Calls {
		var file struct{ Path, Content string }
		if err := json.Unmarshal([]byte(c.Args), &file); err != nil {
			return blob.Digest{}, fmt.Errorf("demo: call %s: %w", c.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, file.Path), []byte(file.Content), 0o644); err != nil {
			return blob.Digest{}, err
		}
	}
	blobs := blob.NewMemory()
	head, err := workspace.Snapshot(ctx, blobs, dir, blob.Digest{}, workspace.Limits{})
	if err != nil {
		return blob.Digest{}, err
	}
	files, err := manifest.Load(ctx, blobs, head)
	if err != nil {
		return blob.Digest{}, err
	}
	return files.Digest(), nil
}
