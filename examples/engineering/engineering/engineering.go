// Package engineering is the second of the three systems: a lead plans a small service, a
// team builds its parts concurrently in the same files, and a tester checks the result.
package engineering

import (
	"context"
	_ "embed"
	"errors"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "engineering", Name: "engineering", Does: "A team builds parts of a service at once.",
		New: newTeam, Input: "Build a service where people sign in and keep notes.", Script: script,
	}
}

// Team builds in nested workflows: the backend is a branch of the team, and has branches of
// its own.
type Team struct {
	Lead, Architect, Auth, Data, Frontend, Tester *flow.Agent
}

// Forward implements flow.Workflow.
func (w *Team) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := flow.Sequence(w.Lead, w.Architect).Forward(ctx, s)
	if err != nil {
		return s, err
	}
	backend := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return together(ctx, s, flow.Branch{Name: "auth", Workflow: w.Auth}, flow.Branch{Name: "data", Workflow: w.Data})
	})
	s, err = together(ctx, s, flow.Branch{Name: "backend", Workflow: backend}, flow.Branch{Name: "frontend", Workflow: w.Frontend})
	if err != nil {
		return s, err
	}
	return w.Tester.Forward(ctx, s)
}

// together runs branches of s concurrently and merges their messages and their changes to
// files. If two changed one file, lines that do not overlap merge automatically; otherwise
// both versions are kept, and the record names them.
func together(ctx context.Context, s session.Session, branches ...flow.Branch) (session.Session, error) {
	j, err := flow.FanOut(ctx, s, branches, nil)
	if err != nil {
		return s, err
	}
	for _, o := range j.Outcomes {
		err = errors.Join(err, o.Err)
	}
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.KeepBoth, nil))
}

func newTeam(s flow.Info) (flow.Workflow, error) {
	tools := func(names ...string) (all []tool.Tool) {
		for _, name := range names {
			t, _ := tool.ByName(name)
			all = append(all, t)
		}
		return all
	}
	agent := func(name, prompt string, tools []tool.Tool) *flow.Agent {
		return &flow.Agent{Name: name, Prompt: prompt, Tools: tools, Provider: llm.Provider{Model: s.Model}}
	}
	build := tools(tool.Edit, tool.WriteWorkspaceFile)
	return ladder.Prompted(s, &Team{
		Lead:      agent("lead", "You are the lead. Say what is to be built.", nil),
		Architect: agent("architect", "You are the architect. Say which parts there are.", nil),
		Auth:      agent("auth", "You are the engineer of auth. Build it, and add it to routes.txt.", build),
		Data:      agent("data", "You are the engineer of data. Build it, and add it to routes.txt.", build),
		Frontend:  agent("frontend", "You are the engineer of the frontend. Build it.", build),
		Tester:    agent("tester", "You are the tester. Run check.sh.", tools(tool.RunShellCommand)),
	})
}
