package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/roster"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ofWorkspace selects all agents in files of the workspace.
const ofWorkspace = "workspace"

// inWorkspace reports whether a name selects agents of the workspace.
func inWorkspace(name string) bool {
	return name == ofWorkspace || strings.HasPrefix(name, ofWorkspace+"/")
}

// rosterRegistrations offer each agent in a file as a workflow. Its input is that of the
// workflow "agent"; prompt, name and limits come from the file, and its tools and model
// unless the task names some.
func (p *agentParts) rosterRegistrations() (all []flow.Registration) {
	for i := range p.roster {
		a := &p.roster[i]
		all = append(all, flow.Registration{
			Name: a.Name, Revision: a.Revision(), Input: json.RawMessage(agentSchema), Description: a.Description,
			NewFor: func(s flow.Info) (flow.Workflow, error) {
				in, err := readAgent(s.Input)
				switch {
				case err != nil:
					return nil, err
				case in.System != "" || in.Name != "":
					return nil, &strict.Error{Message: a.Name + " input", Field: "system", Problem: "prompt and name of this agent come from its file", Remedy: `use the workflow "agent" for others`}
				}
				in.System, in.Name, in.Rounds = a.Prompt, a.Name, cmp.Or(in.Rounds, a.Rounds)
				if len(s.Tools) == 0 {
					s.Tools = a.Tools
				}
				if len(s.MCP) == 0 {
					s.MCP = a.MCP
				}
				s.Model = cmp.Or(s.Model, a.Model)
				w, err := p.newAgent(in, s)
				if err != nil {
					return nil, err
				}
				w.bare = a.None && len(s.Tools) == 0
				w.Agent.Budget = limitsOf(a)
				return w, nil
			},
		})
	}
	return all
}

// checkAgents rejects names without an agent.
func (p *agentParts) checkAgents(names []string) error {
	for i, name := range names {
		if inWorkspace(name) || slices.ContainsFunc(p.roster, func(a roster.Agent) bool { return a.Name == name }) {
			continue
		}
		there := []string{`"workspace" for those in files of the workspace`}
		for _, a := range p.roster {
			there = append(there, a.Name)
		}
		return &strict.Error{Message: "agent input", Field: fmt.Sprintf("agents[%d]", i), Problem: fmt.Sprintf("this node has no agent %q", name), Remedy: "there are: " + strings.Join(there, ", ")}
	}
	return nil
}

// chosenAgents are the agents of a run, as its step "agents" records them: the files may
// change, and differ between nodes.
type chosenAgents struct {
	Node      []roster.Agent `json:"node,omitempty"`
	Workspace []roster.Agent `json:"workspace,omitempty"`
	LeftOut   []string       `json:"left_out,omitempty"` // files of the workspace, with reasons
}

// choose reads the agents that a task names.
func (w *oneAgent) choose(ctx context.Context, s session.Session) (c chosenAgents, err error) {
	for _, a := range w.node.roster {
		if slices.Contains(w.in.Agents, a.Name) {
			c.Node = append(c.Node, a)
		}
	}
	if !slices.ContainsFunc(w.in.Agents, inWorkspace) {
		return c, nil
	}
	at := s.Placement()
	if at.Head.IsZero() {
		return c, &strict.Error{Message: "agent input", Field: "agents", Problem: "the task has no files, so there are no agents of the workspace", Remedy: "give it some, or leave workspace out"}
	}
	all, told, err := roster.OfWorkspace(ctx, w.node.blobs(s.Key().Tenant), at.Head)
	if err != nil {
		return c, err
	}
	c.LeftOut = told
	for _, a := range all {
		if slices.Contains(w.in.Agents, ofWorkspace) || slices.Contains(w.in.Agents, ofWorkspace+"/"+a.Name) {
			c.Workspace = append(c.Workspace, a)
		}
	}
	for i, name := range w.in.Agents {
		one, ok := strings.CutPrefix(name, ofWorkspace+"/")
		found := slices.ContainsFunc(c.Workspace, func(a roster.Agent) bool { return a.Name == one })
		if ok && !found || name == ofWorkspace && len(c.Workspace) == 0 {
			return c, &strict.Error{
				Message: "agent input", Field: fmt.Sprintf("agents[%d]", i), Problem: fmt.Sprintf("the workspace has no usable agent for %q in %s", name, strings.Join(roster.Folders, " or ")),
				Remedy: strings.Join(append([]string{"add its file NAME.md"}, told[:min(len(told), 3)]...), "; "),
			}
		}
	}
	return c, nil
}

// agentTools returns the tools that run the agents which the task names. caller is the agent
// that gets them.
func (w *oneAgent) agentTools(ctx context.Context, s session.Session, caller *flow.Agent) (tools []tool.Tool, err error) {
	c, err := flow.Do(ctx, "agents", func(ctx context.Context) (chosenAgents, error) { return w.choose(ctx, s) }, tool.ReadOnly)
	if err != nil {
		return nil, err
	}
	for _, a := range c.Node {
		d, err := w.trusted(ctx, &a, caller)
		if err != nil {
			return nil, err
		}
		tools = append(tools, flow.WorkflowTool(a.Name, a.Description, d))
	}
	for _, a := range c.Workspace {
		description := fmt.Sprintf("An agent of the workspace, whose file says: %q", a.Description)
		tools = append(tools, flow.WorkflowTool(ofWorkspace+"__"+a.Name, description, w.untrusted(&a, caller)))
	}
	for _, t := range tools {
		if slices.ContainsFunc(caller.Tools, func(o tool.Tool) bool { return o.Spec().Name == t.Spec().Name }) {
			return nil, &strict.Error{Message: "agent input", Field: "agents", Problem: fmt.Sprintf("an agent and a tool have the name %q", t.Spec().Name), Remedy: "leave one of them out, or rename the agent's file and name"}
		}
	}
	return tools, nil
}

// trusted returns the workflow of an agent in a file of the node's operator.
func (w *oneAgent) trusted(ctx context.Context, a *roster.Agent, caller *flow.Agent) (flow.Workflow, error) {
	d := w.called(a, caller)
	d.Name, d.Prompt, d.Provider = a.Name, a.Prompt, llm.Provider{Model: cmp.Or(a.Model, caller.Provider.Model)}
	if len(a.Tools) > 0 || a.None {
		here, others := pickTools(w.node.tools, a.Tools)
		if len(others) > 0 {
			found, err := w.node.elsewhere(ctx, others)
			if err != nil {
				return nil, fmt.Errorf("agent file %s: %w", a.File, err)
			}
			here = append(here, found...)
		}
		d.Tools, d.MCP = here, nil
	}
	if len(a.MCP) > 0 {
		d.MCP = a.MCP
	}
	return d, nil
}

// untrusted returns the workflow of an agent in a file of the workspace: its tools and
// servers are at most the caller's, its model is the caller's, and its text is no
// instruction but a quotation.
func (w *oneAgent) untrusted(a *roster.Agent, caller *flow.Agent) flow.Workflow {
	d := w.called(a, caller)
	d.Name = ofWorkspace + "/" + a.Name
	if len(a.Tools) > 0 || a.None {
		d.Tools, _ = pickTools(caller.Tools, a.Tools)
		d.MCP = nil
	}
	if len(a.MCP) > 0 {
		d.MCP = slices.DeleteFunc(slices.Clone(a.MCP), func(name string) bool { return !slices.Contains(caller.MCP, name) })
	}
	return &quotedAgent{Agent: d, quoted: a.Quoted()}
}

// called returns a copy of the calling agent for another one. It shares the approvals, and
// has no memory and no notes.
func (w *oneAgent) called(a *roster.Agent, caller *flow.Agent) *flow.Agent {
	return &flow.Agent{
		Provider: caller.Provider, Tools: slices.Clip(caller.Tools), MCP: caller.MCP, MaxRounds: a.Rounds, Budget: limitsOf(a),
		Approve: caller.Approve, ApproveTimeout: caller.ApproveTimeout,
	}
}

func limitsOf(a *roster.Agent) run.Budget { return run.Budget{Tokens: a.Tokens, MicroUSD: a.MicroUSD} }

// quotedAgent is an agent of a workspace, whose text is part of its session.
type quotedAgent struct {
	Agent  *flow.Agent
	quoted string
}

// Forward implements flow.Workflow.
func (q *quotedAgent) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	return q.Agent.Forward(ctx, s.With(session.UserText(q.quoted).Of(session.Origin{Agent: journal.ByWorkspace})))
}
