package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/roster"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// agentInput is the input of the built-in workflow "agent". A task may send
// plain JSON text instead, which is the prompt.
type agentInput struct {
	Prompt string `json:"prompt,omitempty"` // of the user; without it the session supplies the task
	System string `json:"system,omitempty"` // instructs the model
	Name   string `json:"name,omitempty"`   // of the agent; "agent" without it
	Memory string `json:"memory,omitempty"` // the memory to recall from
	// Commit makes the run write notes of the conversation into that memory.
	Commit bool `json:"commit,omitempty"`
	Rounds int  `json:"rounds,omitempty"` // model calls at most
	// Approve names the tools whose calls a person has to approve; "*" is all.
	Approve []string `json:"approve,omitempty"`
	// ApproveTimeoutMS is how many milliseconds a person has to approve a call;
	// without it 14 days. A call that is not approved in time does not
	// run, and the model gets that as its result.
	ApproveTimeoutMS int64 `json:"approve_timeout_ms,omitempty"`
	// ToolChoice directs the first model call: required, none, auto, or the name of the
	// tool to call; see flow.Agent.ToolChoice.
	ToolChoice string `json:"tool_choice,omitempty"`
	// Images are sent with the prompt, at most session.MaxImages. Each is a blob of the
	// tenant by its digest of 64 hexadecimal digits, or a URL with the data itself,
	// "data:image/png;base64,...". See session.NewImage for the accepted formats.
	Images []string `json:"images,omitempty"`
	// Guide adds AGENTS.md and the skills of the workspace to the prompt; nil is true.
	Guide *bool `json:"guide,omitempty"`
	// Agents names agents in files of this node that the agent may call as tools.
	// "workspace" is all agents in files of the workspace, "workspace/NAME" one of them.
	Agents []string `json:"agents,omitempty"`
}

// agentWorkflow is the name of the built-in agent.
const agentWorkflow = "agent"

// maxApproveTimeout is a year, as for a budget of time.
const maxApproveTimeout = 366 * 24 * time.Hour

const agentSchema = `{"oneOf":[{"type":"null"},{"type":"string"},{"type":"object","additionalProperties":false,"properties":{` +
	`"prompt":{"type":"string"},"system":{"type":"string"},"name":{"type":"string"},"memory":{"type":"string"},"commit":{"type":"boolean"},"rounds":{"type":"integer","minimum":1},` +
	`"tool_choice":{"type":"string"},"images":{"type":"array","maxItems":16,"items":{"type":"string"}},"guide":{"type":"boolean"},"agents":{"type":"array","maxItems":32,"items":{"type":"string"}},"approve":{"type":"array","items":{"type":"string"}},"approve_timeout_ms":{"type":"integer","minimum":1,"maximum":31622400000}}}]}`

// agentParts are the parts of a node that its agents use.
type agentParts struct {
	tools     []tool.Tool // those that a task may name
	elsewhere func(ctx context.Context, names []string) ([]tool.Tool, error)
	blobs     func(session.Tenant) blob.Store
	roster    []roster.Agent // the agents in files
}

// registration offers one agent whose prompt, model, tools, workspace and budget come from
// the task.
func (p *agentParts) registration() flow.Registration {
	return flow.Registration{
		Name: agentWorkflow, Revision: "1", Input: json.RawMessage(agentSchema),
		Description: "One agent: prompt, model, tools, workspace and budget come from the task.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			in, err := readAgent(s.Input)
			if err != nil {
				return nil, err
			}
			w, err := p.newAgent(in, s)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
	}
}

// newAgent returns the agent of a task.
func (p *agentParts) newAgent(in agentInput, s flow.Info) (*oneAgent, error) {
	if err := p.checkAgents(in.Agents); err != nil {
		return nil, err
	}
	chosen, others := pickTools(p.tools, s.Tools)
	agent := &flow.Agent{
		Name: cmp.Or(in.Name, "agent"), Prompt: in.System, Provider: llm.Provider{Model: s.Model}, Memory: in.Memory, Commit: in.Commit, MaxRounds: in.Rounds, Tools: chosen, MCP: s.MCP, ToolChoice: in.ToolChoice,
		ApproveTimeout: time.Duration(in.ApproveTimeoutMS) * time.Millisecond,
	}
	if len(in.Approve) > 0 {
		agent.Approve = func(spec tool.Spec, _ json.RawMessage) bool {
			return slices.Contains(in.Approve, "*") || slices.Contains(in.Approve, spec.Name)
		}
	}
	return &oneAgent{Agent: agent, in: in, task: s, others: others, node: p}, nil
}

// oneAgent is the workflow "agent" for one task.
type oneAgent struct {
	Agent  *flow.Agent
	in     agentInput
	task   flow.Info
	others []string // tools that this node has not
	bare   bool     // it has no tools, also with a workspace
	node   *agentParts
}

// Forward implements flow.Workflow.
func (w *oneAgent) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	equipped := *w.Agent
	if s.Placement().Backend != "" && len(w.task.Tools) == 0 && !w.bare {
		equipped.Tools = usualTools(w.node.tools)
	}
	if len(w.others) > 0 {
		found, err := w.node.elsewhere(ctx, w.others)
		if err != nil {
			return s, err
		}
		equipped.Tools = append(slices.Clone(w.Agent.Tools), found...)
	}
	switch {
	case strings.TrimSpace(w.in.Prompt) != "":
		if w.in.Guide == nil || *w.in.Guide {
			guided, more, err := flow.AddWorkspaceGuide(ctx, s)
			if err != nil {
				return s, err
			}
			s = guided
			if len(w.task.Tools) == 0 && !w.bare { // otherwise the task names it if it wants it
				equipped.Tools = append(equipped.Tools, more...)
			}
		}
		images, err := attach(ctx, w.node.blobs, s.Key().Tenant, w.in.Images)
		if err != nil {
			return s, err
		}
		s = s.With(session.UserText(w.in.Prompt).WithImages(images...))
	case s.Len() == 0:
		return s, &strict.Error{Message: "agent", Problem: "the prompt is empty", Remedy: `send "input": "what to do", or a session that says it`}
	}
	if len(w.in.Agents) > 0 {
		more, err := w.agentTools(ctx, s, &equipped)
		if err != nil {
			return s, err
		}
		equipped.Tools = append(slices.Clip(equipped.Tools), more...)
	}
	if err := cmp.Or(w.checkChoice(equipped.Tools), w.checkApprove(equipped.Tools)); err != nil {
		return s, err
	}
	return equipped.Forward(ctx, s)
}

// checkChoice rejects a choice that no call can make. The tools of the task's servers
// are found later.
func (w *oneAgent) checkChoice(tools []tool.Tool) error {
	choice := w.in.ToolChoice
	switch {
	case choice == "", choice == "auto", choice == "none", len(w.task.MCP) > 0:
		return nil
	case len(tools) == 0:
		return &strict.Error{Message: "agent input", Field: "tool_choice", Problem: fmt.Sprintf("%q, and the task has no tools", choice), Remedy: `name some in "tools", or give it files`}
	case choice == "required", slices.ContainsFunc(tools, func(t tool.Tool) bool { return t.Spec().Name == choice }):
		return nil
	}
	return &strict.Error{Message: "agent input", Field: "tool_choice", Problem: fmt.Sprintf("there is no tool %q", choice), Remedy: "say required, none, auto, or the name of a tool that the task has"}
}

// checkApprove rejects a name without a tool of the task or of this node: the tool that
// was meant would run without approval. The tools of the task's servers are found
// later.
func (w *oneAgent) checkApprove(tools []tool.Tool) error {
	if len(w.task.MCP) > 0 {
		return nil
	}
	for i, name := range w.in.Approve {
		named := func(t tool.Tool) bool { return t.Spec().Name == name }
		if name != "*" && !slices.ContainsFunc(tools, named) && !slices.ContainsFunc(w.node.tools, named) {
			return &strict.Error{
				Message: "agent input", Field: fmt.Sprintf("approve[%d]", i), Problem: fmt.Sprintf("there is no tool %q", name),
				Remedy: `say "*" for all tools, or the names of tools that the task has`,
			}
		}
	}
	return nil
}

// usualTools are the tools of an agent with a workspace whose task names none. Each
// tool costs tokens in every request, so the list is short. Tools that must be named
// change files in a second way, help only with long tasks, or show content that not
// every model can read.
func usualTools(tools []tool.Tool) []tool.Tool {
	return slices.DeleteFunc(slices.Clone(tools), func(t tool.Tool) bool {
		name := t.Spec().Name
		if _, ours := tool.ByName(name); !ours {
			return true
		}
		return name == tool.ApplyPatch || name == tool.Fetch || name == tool.Todo || name == tool.Skill || name == tool.ViewImage
	})
}

func readAgent(raw json.RawMessage) (agentInput, error) {
	var in agentInput
	text := strings.TrimSpace(string(raw))
	if text == "" || text == "null" {
		return in, nil
	}
	if text[0] == '"' {
		if err := json.Unmarshal(raw, &in.Prompt); err != nil {
			return in, fmt.Errorf("agent: input: %w", err)
		}
		return in, nil
	}
	if err := messages.DecodeInput("agent", raw, &in); err != nil {
		return in, fmt.Errorf(`%w; send text, or an object with "prompt" and optionally system, name, memory, commit, rounds, tool_choice, images, guide, agents, approve, approve_timeout_ms`, err)
	}
	if in.Memory != "" && session.ValidID("memory", in.Memory) != nil {
		return in, &strict.Error{Message: "agent input", Field: "memory", Problem: messages.Text(session.ValidID("memory", in.Memory)), Remedy: "send the name of a memory"}
	}
	if in.Commit && in.Memory == "" {
		return in, &strict.Error{Message: "agent input", Field: "commit", Problem: "there is no memory to write notes into", Remedy: `name one: "memory": "team"`}
	}
	if in.ApproveTimeoutMS < 0 || in.ApproveTimeoutMS > maxApproveTimeout.Milliseconds() {
		return in, &strict.Error{
			Message: "agent input", Field: "approve_timeout_ms", Problem: fmt.Sprintf("%d ms is not between 1 and a year", in.ApproveTimeoutMS),
			Remedy: fmt.Sprintf("it counts milliseconds; leave it out for %d days", int(journal.DefaultExpiry.Hours())/24),
		}
	}
	return in, in.checkImages()
}

// pickTools returns the tools of the given names, and the names without a tool.
func pickTools(all []tool.Tool, names []string) (picked []tool.Tool, others []string) {
	for _, name := range names {
		if i := slices.IndexFunc(all, func(t tool.Tool) bool { return t.Spec().Name == name }); i >= 0 {
			picked = append(picked, all[i])
		} else {
			others = append(others, name)
		}
	}
	return picked, others
}
