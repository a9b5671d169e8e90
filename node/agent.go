package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// AgentInput is the input of the built-in workflow "agent". A task may send
// plain JSON text instead, which is the prompt.
type AgentInput struct {
	Prompt string `json:"prompt"`           // what the user says
	System string `json:"system,omitempty"` // instructs the model
	Name   string `json:"name,omitempty"`   // of the agent; "agent" without it
	Memory string `json:"memory,omitempty"` // the memory to recall from
	Rounds int    `json:"rounds,omitempty"` // model calls at most
	// Approve names the tools whose calls a person has to approve; "*" is all.
	Approve []string `json:"approve,omitempty"`
}

const agentSchema = `{"oneOf":[{"type":"string"},{"type":"object","required":["prompt"],"additionalProperties":false,"properties":{` +
	`"prompt":{"type":"string"},"system":{"type":"string"},"name":{"type":"string"},"memory":{"type":"string"},"rounds":{"type":"integer","minimum":1},` +
	`"approve":{"type":"array","items":{"type":"string"}}}}]}`

// agentRegistration offers one agent whose prompt, model, tools, workspace and
// budget come from the task. tools are those that a task may name.
func agentRegistration(tools []tool.Tool) flow.Registration {
	return flow.Registration{
		Name: "agent", Revision: "1", Input: json.RawMessage(agentSchema),
		Description: "One agent: prompt, model, tools, workspace and budget come from the task.",
		NewFor: func(s flow.Settings) (flow.Workflow, error) {
			in, err := readAgentInput(s.Input)
			if err != nil {
				return nil, err
			}
			chosen, err := pickTools(tools, s.Tools)
			if err != nil {
				return nil, err
			}
			agent := &flow.Agent{
				Name: in.Name, Prompt: in.System, Provider: llm.Provider{Model: s.Model}, Memory: in.Memory, MaxRounds: in.Rounds, Tools: chosen,
			}
			if agent.Name == "" {
				agent.Name = "agent"
			}
			if len(in.Approve) > 0 {
				agent.Approve = func(spec tool.Spec, _ json.RawMessage) bool {
					return slices.Contains(in.Approve, "*") || slices.Contains(in.Approve, spec.Name)
				}
			}
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				if v.Placement().Backend != "" && len(s.Tools) == 0 {
					withFiles := *agent
					withFiles.Tools = tool.Builtins()
					return withFiles.Forward(ctx, v.With(session.UserText(in.Prompt)))
				}
				return agent.Forward(ctx, v.With(session.UserText(in.Prompt)))
			}), nil
		},
	}
}

func readAgentInput(raw json.RawMessage) (AgentInput, error) {
	var in AgentInput
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return in, errors.New(`agent: the task has no input: send "input": "what to do"`)
	}
	if text[0] == '"' {
		if err := json.Unmarshal(raw, &in.Prompt); err != nil {
			return in, fmt.Errorf("agent: input: %w", err)
		}
	} else {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return in, fmt.Errorf(`agent: input: %w; send text, or an object with "prompt" and optionally system, name, memory, rounds, approve`, err)
		}
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return in, errors.New("agent: the prompt is empty")
	}
	return in, nil
}

// pickTools returns the tools of the given names.
func pickTools(all []tool.Tool, names []string) ([]tool.Tool, error) {
	var picked []tool.Tool
	for _, name := range names {
		i := slices.IndexFunc(all, func(t tool.Tool) bool { return t.Spec().Name == name })
		if i < 0 {
			have := make([]string, len(all))
			for i, t := range all {
				have[i] = t.Spec().Name
			}
			slices.Sort(have)
			return nil, fmt.Errorf("agent: this node has no tool %q; it has: %s", name, strings.Join(have, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}
