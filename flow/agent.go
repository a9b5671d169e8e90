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

// ErrMaxRounds is returned when an agent still calls tools after its last
// round. The session keeps what it did.
var ErrMaxRounds = errors.New("flow: agent did not finish within its rounds")

// Agent is a workflow that asks a model, runs the tools it calls and goes on
// until it answers without calling one. It is plain data: copy and vary it
// freely. It holds the names of models and memories, never connections.
type Agent struct {
	Name     string
	Prompt   string // instructs the model; not part of the session
	Provider llm.Provider
	Tools    []tool.Tool
	// MCP names MCP servers of the node whose tools it has as well, as SERVER__TOOL. Which
	// tools those are is recorded before the first model call, and stays so for the run.
	MCP []string
	// ToolChoice is what the first model call of Forward has to do: llm.ToolsRequired, or
	// the name of the tool that it calls; those after it may call tools, so that the agent
	// comes to an end. llm.ToolsNone holds for all. "" and llm.ToolsAuto leave it to the
	// model.
	ToolChoice string
	// Memory names the memory that is searched for the user's last message;
	// what is found follows the session in the prompt. "" is none.
	Memory string
	// Recall is how many notes are recalled at most; 0 is 4.
	Recall int
	// Commit has the agent's model take notes, after each Forward, of what was said since the
	// answer before, and writes them into Memory: see [CommitNotes]. Where that fails the
	// run warns, or its steps say so, and Forward does not fail.
	Commit bool
	// MaxRounds bounds the model calls; 0 is 64, and ends an agent sooner that
	// makes the same calls with the same results sixteen times in a row.
	MaxRounds int
	// MaxContext is how many tokens a request and its answer may have; 0 is what the node's
	// list says of the model, if it does. The session is compressed before it has more than
	// three quarters, and also where a server refuses it as too long. The user's newest words
	// are not compressed.
	MaxContext int64
	// Overflow makes of such a session what the agent goes on with; nil is a Compressor
	// with the agent's provider that keeps the newest eighth. A workflow that returns the
	// session as it is lets the model's error end the agent.
	Overflow Workflow
	// Budget bounds this agent's part of the run.
	Budget run.Budget
	// Hooks are called around what the agent does; the zero Hooks are none.
	Hooks Hooks
	// Approve says which calls a person has to approve before they run; nil is
	// none. It must answer the same for the same call. Calls that are rejected
	// do not run, and the model gets the reason. It also gets the arguments of a call
	// as a person changed them.
	Approve func(spec tool.Spec, args json.RawMessage) bool
	// ApproveTimeout is how long a person has; zero is journal.DefaultExpiry. A call
	// that is not approved in time counts as rejected.
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

// takeNotes has the agent's model take notes of what was said since the answer before. It
// is apart from Forward, which waits for the model on a small stack.
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
