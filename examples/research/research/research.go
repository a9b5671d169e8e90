// Package research is the third of the three systems: a literature branch and a branch that
// reproduces figures work concurrently on a thesis. Each is compressed before the merge,
// and two editors combine both into a paper.
package research

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
		Dir: "research", Name: "research", Does: "Two branches of research become a paper.",
		New: newResearch, Input: "Write a paper on the thesis in thesis.md.", Script: script,
	}
}

// rounds is the number of times that each branch revises its work.
const rounds = 2

// Research writes a paper.
type Research struct {
	Literature, Reproduction flow.Workflow
	Draft, Polish            *flow.Agent
}

// Forward implements flow.Workflow.
func (w *Research) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	j, err := flow.FanOut(ctx, s, []flow.Branch{
		{Name: "literature", Workflow: w.Literature},
		{Name: "reproduction", Workflow: w.Reproduction},
	}, nil)
	if err != nil {
		return s, err
	}
	for _, o := range j.Outcomes {
		err = errors.Join(err, o.Err)
	}
	if err != nil {
		return s, err
	}
	// A compressed branch contributes its summary and all its files. The messages before the
	// summary stay in the branch's log.
	if s, err = flow.Merge(ctx, j, flow.WithFiles(flow.SinceAncestor(), flow.KeepBoth, nil)); err != nil {
		return s, err
	}
	return flow.Sequence(w.Draft, w.Polish).Forward(ctx, s)
}

// times runs agents one after the other, n times.
func times(n int, agents ...flow.Workflow) flow.Workflow {
	var all []flow.Workflow
	for range n {
		all = append(all, agents...)
	}
	return flow.Sequence(all...)
}

func newResearch(s flow.Info) (flow.Workflow, error) {
	tools := func(names ...string) (all []tool.Tool) {
		for _, name := range names {
			t, _ := tool.ByName(name)
			all = append(all, t)
		}
		return all
	}
	model := llm.Provider{Model: s.Model}
	agent := func(name, prompt string, tools ...tool.Tool) *flow.Agent {
		return &flow.Agent{Name: name, Prompt: prompt, Tools: tools, Provider: model}
	}
	sum := func(name string) flow.Workflow {
		return &flow.Compressor{Name: name, Prompt: "You are the summary of " + name + ".", Provider: model}
	}
	write := tools(tool.WriteWorkspaceFile)
	return ladder.Prompted(s, &Research{
		Literature: flow.Sequence(
			agent("packager", "You are the packager. Say what the thesis claims.", tools(tool.ReadWorkspaceFile)...),
			times(rounds,
				agent("reader", "You are the reader of literature. Name one source more."),
				agent("writer", "You are the writer of literature.md. Write it again.", write...)),
			sum("literature")),
		Reproduction: flow.Sequence(
			times(rounds,
				agent("examiner", "You are the examiner. Ask one question more."),
				agent("verifier", "You are the verifier. Run measure.sh, and write figures.md.", tools(tool.RunShellCommand, tool.WriteWorkspaceFile)...)),
			sum("reproduction")),
		Draft:  agent("drafter", "You are the drafter. Write paper.md.", write...),
		Polish: agent("polisher", "You are the polisher. Edit paper.md.", tools(tool.Edit)...),
	})
}
