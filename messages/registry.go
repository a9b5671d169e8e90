package messages

import (
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/internal/excerpt"
	"github.com/rathcluster/rath/internal/strict"
	"github.com/rathcluster/rath/session"
)

// Tool is a tool that another process announced: it answers requests on its
// ToolSubject.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Effect      string          `json:"effect,omitempty"` // non_idempotent (also if empty), idempotent, read_only or sandboxed
	Input       json.RawMessage `json:"input,omitempty"`  // JSON Schema of the arguments
	TimeoutMS   int64           `json:"timeout_ms,omitempty"`
}

// DecodeTool reads what a process announced.
func DecodeTool(data []byte) (Tool, error) {
	var t Tool
	if err := strict.Decode(MaxMessage, "tool", data, &t); err != nil {
		return Tool{}, err
	}
	if err := session.ValidID("tool", t.Name); err != nil {
		return Tool{}, &strict.Error{Message: "tool", Field: "name", Problem: Text(err), Remedy: "choose a name of that kind"}
	}
	switch t.Effect {
	case "", "non_idempotent", "idempotent", "read_only", "sandboxed":
	default:
		return Tool{}, &strict.Error{
			Message: "tool", Field: "effect", Problem: fmt.Sprintf("%q is none", excerpt.Start(t.Effect, 40)),
			Remedy: "send non_idempotent, idempotent, read_only or sandboxed",
		}
	}
	return t, nil
}

// The classes of workflows: within a pool the work of interactive ones is taken
// before that of batches.
const (
	ClassInteractive = "interactive"
	ClassBatch       = "batch"
)

// Part is an agent or a workflow that a workflow on offer is made of, without a task that
// says otherwise.
type Part struct {
	// Path leads to it: fields, indexes, keys and names of branches, between points.
	Path string `json:"path"`
	Kind string `json:"kind"` // agent, workflow, remote, selector or compressor
	// Branch says that it runs on a branch of the session.
	Branch bool `json:"branch,omitempty"`
	// Name is that of an agent, of a remote workflow, or of the type in Go.
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"` // of an agent how its prompt begins
	Revision    string `json:"revision,omitempty"`    // of a remote workflow
	// Model is what it asks; of an agent, a selector and a compressor without one it is that
	// of the task.
	Model      string   `json:"model,omitempty"`
	Memory     string   `json:"memory,omitempty"`
	Tools      []string `json:"tools,omitempty"`
	MCP        []string `json:"mcp,omitempty"`         // servers
	MaxRounds  int      `json:"max_rounds,omitempty"`  // calls of the model at most
	MaxContext int64    `json:"max_context,omitempty"` // tokens
	Budget     Budget   `json:"budget,omitzero"`
}

// WorkflowKey is the key of a workflow on offer in the bucket REGISTRY.
func WorkflowKey(pool, name string) string { return "workflow." + pool + "." + name }

// ToolKey is the key of a tool in the bucket REGISTRY.
func ToolKey(t session.Tenant, name string) string { return "tool." + string(t) + "." + name }
