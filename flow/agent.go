package flow

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// ErrMaxRounds is returned when an agent has used all its rounds and still calls tools.
// The session keeps its work.
var ErrMaxRounds = errors.New("flow: agent did not finish within its rounds")

// Agent is a workflow that calls a model and runs the tools of each answer until an
// answer calls no tool. It is plain data: copy and vary it freely. It holds the names of
// models and memories, never connections.
type Agent struct {
	Name     string
	Prompt   string // instructs the model; not part of the session
	Provider llm.Provider
	Tools    []tool.Tool
	// MCP names MCP servers of the node. The agent also has their tools, as SERVER__TOOL.
	// The list of these tools is recorded before the first model call and is fixed for
	// the run.
	MCP []string
	// ToolChoice constrains the first model call of Forward: llm.ToolsRequired, or the
	// name of the tool to call. Later calls may call any tool or none, so that the agent
	// can finish. llm.ToolsNone applies to all calls. "" and llm.ToolsAuto leave the
	// choice to the model.
	ToolChoice string
	// Memory names the memory to search for the user's last message. The notes found
	// follow the session in the prompt. "" is none.
	Memory string
	// Recall is the maximum number of notes to recall; 0 means 4.
	Recall int
	// Commit makes the agent's model take notes after each Forward, from the conversation
	// since the previous answer, and writes them into Memory: see [CommitNotes]. A
	// failure is recorded in a warning or in the steps; Forward itself does not fail.
	Commit bool
	// MaxRounds bounds the model calls. 0 means 64, and also stops an agent that makes
	// the same calls with the same results sixteen times in a row.
	MaxRounds int
	// MaxContext is the maximum number of tokens in a request and its answer; 0 is the
	// limit in the node's list of models, if any. The session is compressed at three
	// quarters of the limit, and when a server rejects it as too long. The user's newest
	// message is never compressed.
	MaxContext int64
	// Overflow shortens a session that is too long, and the agent continues with the
	// result. nil is a Compressor with the agent's provider that keeps the newest eighth.
	// If Overflow returns the session unchanged, the model's error ends the agent.
	Overflow Workflow
	// Budget bounds this agent's part of the run.
	Budget run.Budget
	// Hooks are called during the agent's work; the zero Hooks are none.
	Hooks Hooks
	// Approve reports whether a call needs approval before it runs; nil means that no
	// call does. It must return the same result for the same call. A rejected call does
	// not run, and the model gets the reason. If the approver changes the arguments of a
	// call, the model gets the new arguments as well.
	Approve func(spec tool.Spec, args json.RawMessage) bool
	// ApproveTimeout is the time to wait for an approval; zero means 14 days. A call that
	// is not approved in time counts as rejected.
	ApproveTimeout time.Duration
}

// Forward implements Workflow.
func (a *Agent) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	e, err := engineOf(ctx)
	if err != nil {
		return s, err
	}
	out, err := e.Agent(ctx, a, s)
	if err != nil || !a.Commit || a.Memory == "" {
		return out, err
	}
	return out, a.takeNotes(ctx, s, out)
}

// takeNotes makes the agent's model take notes of the conversation since the previous
// answer. It is separate from Forward, which waits for the model on a small stack.
func (a *Agent) takeNotes(ctx context.Context, s, out session.Session) error {
	from := s.Len()
	for ; from > 0; from-- {
		if c, _ := s.At(from - 1); c.Kind() == session.Assistant {
			break
		}
	}
	if out.Len() < s.Len() {
		from = 0 // it was compressed on the way
	}
	if _, err := commitNotes(ctx, out, from, a.Memory, &Agent{Name: a.Name, Provider: a.Provider}); run.IsControl(err) {
		return err
	}
	return nil
}
