package node

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

type crew struct {
	Lead     *flow.Agent
	writer   *flow.Agent
	None     *flow.Agent
	Experts  map[string]flow.Workflow
	Tries    []flow.Branch
	Then     flow.Workflow
	Chooses  flow.Selector
	Shortens *flow.Compressor
	Itself   flow.Workflow
	Group    struct{ A, b *flow.Agent }
	Any      any // unrelated to workflows
	Provider llm.Provider
}

func (*crew) Forward(_ context.Context, s session.Session) (session.Session, error) { return s, nil }

func TestDescribe(t *testing.T) {
	t.Parallel()
	agent := func(name string) *flow.Agent { return &flow.Agent{Name: name} }
	part := func(path, name string) messages.WorkflowPart {
		return messages.WorkflowPart{Path: path, Kind: "agent", Name: name, MaxRounds: engine.DefaultMaxRounds}
	}
	branch := func(p messages.WorkflowPart) messages.WorkflowPart { p.Branch = true; return p }
	w := &crew{
		Lead: &flow.Agent{
			Name: "lead", Prompt: "You lead.\nMind the tests.", Provider: llm.Provider{Model: "big"}, Memory: "team", MCP: []string{"git"}, MaxRounds: 3, MaxContext: 9000,
			Tools: []tool.Tool{tool.Builtins()[0], flow.WorkflowTool("ask", "Asks.", agent("asked"))}, Budget: run.Budget{Tokens: 7}, Overflow: &flow.Compressor{Name: "short"},
		},
		writer:   agent("writer"),
		Experts:  map[string]flow.Workflow{"tax": flow.Described("tax", "Knows taxes.", agent("expert")), "law": flow.Remote{Workflow: "law", Revision: "2"}},
		Tries:    append(flow.Repeat(2, agent("try")), flow.Branch{Name: "sure", Workflow: flow.Func(nil)}),
		Then:     flow.Sequence(agent("first"), flow.EmptyWorkflow{}),
		Chooses:  flow.Selector{Name: "pick"},
		Shortens: &flow.Compressor{Name: "sum", Prompt: "Sum up."},
		Any:      agent("hidden"),
	}
	w.Itself, w.Group.A, w.Group.b = w, agent("a"), agent("b")
	lead := part("Lead", "lead")
	lead.Description, lead.Model, lead.Memory, lead.MCP, lead.MaxRounds, lead.MaxContext = "You lead.", "big", "team", []string{"git"}, 3, 9000
	lead.Tools, lead.Budget = []string{tool.Builtins()[0].Spec().Name, "ask"}, messages.Budget{Tokens: 7}
	tax := part("Experts.tax", "expert")
	tax.Description = "Knows taxes."
	many := make([]flow.Workflow, maxParts+5)
	var first []messages.WorkflowPart
	for i := range many {
		many[i] = agent("a")
		first = append(first, part(strconv.Itoa(i), "a"))
	}
	deep := flow.Workflow(agent("deep"))
	for range maxPartDepth {
		deep = flow.Sequence(deep)
	}
	tests := []struct {
		name string
		g    flow.Registration
		want messages.Workflow
	}{
		{"a struct", flow.Registration{New: func() flow.Workflow { return w }}, messages.Workflow{Type: "*node.crew", Parts: []messages.WorkflowPart{
			lead,
			branch(part("Lead.ask", "asked")),
			{Path: "Lead.Overflow", Kind: "compressor", Name: "short"},
			part("writer", "writer"),
			{Path: "Experts.law", Kind: "remote", Name: "law", Revision: "2"},
			tax,
			branch(part("Tries.b0", "try")), branch(part("Tries.b1", "try")),
			{Path: "Tries.sure", Kind: "workflow", Name: "flow.Func", Branch: true},
			{Path: "Then", Kind: "workflow", Name: "flow.sequence"},
			part("Then.0", "first"),
			{Path: "Then.1", Kind: "workflow", Name: "flow.EmptyWorkflow"},
			{Path: "Chooses", Kind: "selector", Name: "pick"},
			{Path: "Shortens", Kind: "compressor", Name: "sum", Description: "Sum up."},
			part("Group.A", "a"),
		}}},
		{"an agent", flow.Registration{New: func() flow.Workflow { return agent("one") }}, messages.Workflow{Type: "*flow.Agent", Parts: []messages.WorkflowPart{part(".", "one")}}},
		{"a function", flow.Registration{New: func() flow.Workflow { return flow.Func(nil) }}, messages.Workflow{Type: "flow.Func"}},
		{"many", flow.Registration{New: func() flow.Workflow { return flow.Sequence(many...) }}, messages.Workflow{Type: "flow.sequence", Parts: first[:maxParts], Left: 5}},
		{"deep", flow.Registration{New: func() flow.Workflow { return deep }}, messages.Workflow{}},
		{"nothing", flow.Registration{New: func() flow.Workflow { return nil }}, messages.Workflow{}},
		{"one that panics", flow.Registration{New: func() flow.Workflow { panic("no key") }}, messages.Workflow{}},
		{"one that wants an input", flow.Registration{NewFor: func(flow.Info) (flow.Workflow, error) { return nil, errors.New("no input") }}, messages.Workflow{}},
		{"one that wants a text", flow.Registration{NewFor: func(s flow.Info) (flow.Workflow, error) {
			var text string
			if err := json.Unmarshal(s.Input, &text); err != nil || text == "" {
				return nil, errors.New("say what to do")
			}
			return agent("one"), nil
		}}, messages.Workflow{Type: "*flow.Agent", Parts: []messages.WorkflowPart{part(".", "one")}}},
		{"the built-in agent", (&agentParts{}).registration(), messages.Workflow{Type: "*node.oneAgent", Parts: []messages.WorkflowPart{part("Agent", "agent")}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got messages.Workflow
			describe(&got, tt.g)
			if tt.name == "deep" { // only that it terminates
				if len(got.Parts) != maxPartDepth-1 {
					t.Errorf("%d parts", len(got.Parts))
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
