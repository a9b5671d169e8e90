package messages

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/run"
)

// Workflow is an offered workflow.
type Workflow struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Revision    string          `json:"revision,omitempty"`
	Pool        string          `json:"pool,omitempty"`
	Class       string          `json:"class,omitempty"` // messages.ClassInteractive (also if empty) or messages.ClassBatch
	Input       json.RawMessage `json:"input,omitempty"` // JSON Schema
	// Limit bounds the runs of a key; nil is no limit.
	Limit *run.Limit `json:"limit,omitempty"`
	// Type is its Go type; "" if the parts depend on the input of a task.
	Type  string         `json:"type,omitempty"`
	Parts []WorkflowPart `json:"parts,omitempty"` // in the order of the code
	Left  int            `json:"left,omitempty"`  // parts beyond those
}

// WorkflowPart is an agent or a workflow within an offered workflow, unless a task
// overrides it.
type WorkflowPart struct {
	// Path is the path to it: fields, indexes, keys and names of branches, separated by
	// points.
	Path string `json:"path"`
	Kind string `json:"kind"` // agent, workflow, remote, selector or compressor
	// Branch reports that it runs on a branch of the session.
	Branch bool `json:"branch,omitempty"`
	// Name is the name of an agent, of a remote workflow, or of the Go type.
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"` // for an agent, the beginning of its prompt
	Revision    string `json:"revision,omitempty"`    // of a remote workflow
	// Model is its model. An agent, a selector and a compressor without one use the
	// task's model.
	Model      string   `json:"model,omitempty"`
	Memory     string   `json:"memory,omitempty"`
	Tools      []string `json:"tools,omitempty"`
	MCP        []string `json:"mcp,omitempty"`         // servers
	MaxRounds  int      `json:"max_rounds,omitempty"`  // calls of the model at most
	MaxContext int64    `json:"max_context,omitempty"` // tokens
	Budget     Budget   `json:"budget,omitzero"`
}

// Tool is a tool that another process announced: it answers requests on its
// messages.ToolSubject.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Effect      string          `json:"effect,omitempty"` // non_idempotent (also if empty), idempotent, read_only or sandboxed
	Input       json.RawMessage `json:"input,omitempty"`  // JSON Schema of the arguments
	TimeoutMS   int64           `json:"timeout_ms,omitempty"`
}

// Check validates a tool that is announced under a name. It does not interpret the
// schema.
func (t *Tool) Check(name string) error {
	bad := func(field, problem, remedy string) error {
		return &strict.Error{Message: "tool", Field: field, Problem: problem, Remedy: remedy}
	}
	switch {
	case t.Name != name:
		return bad("name", fmt.Sprintf("%q differs from the subject's %q", excerpt.Start(t.Name, 80), name), "say the same")
	case t.Effect == "sandboxed":
		return bad("effect", "a tool of another process has no sandbox of ours", "send non_idempotent, idempotent or read_only")
	case strings.TrimSpace(t.Description) == "":
		return bad("description", "it is missing", "describe the purpose of the tool and the time to call it, for models")
	case len(t.Description) > MaxToolText:
		return bad("description", fmt.Sprintf("%d bytes, at most %d are taken", len(t.Description), MaxToolText), "shorten it")
	case len(t.Input) > MaxToolSchema:
		return bad("input", fmt.Sprintf("%d bytes, at most %d are taken", len(t.Input), MaxToolSchema), "make the schema simpler")
	case t.TimeoutMS < 0 || t.TimeoutMS > MaxToolTimeoutMS:
		return bad("timeout_ms", fmt.Sprintf("%d is not from 1 to %d", t.TimeoutMS, MaxToolTimeoutMS), fmt.Sprintf("leave it out for %d", ToolTimeoutMS))
	}
	return nil
}

// ToolCall is a request on a ToolSubject.
type ToolCall struct {
	// ID is the same on every attempt: a program that has executed the call before
	// repeats its answer.
	ID      string `json:"id"`
	Attempt uint64 `json:"attempt"` // 1 for the first
	// Args is a JSON object that matches the announced schema.
	Args json.RawMessage `json:"args"`
}

// ToolAnswer is the answer to a ToolCall.
type ToolAnswer struct {
	// Body is any JSON; the model reads it. An absent one is null.
	Body json.RawMessage `json:"body,omitempty"`
	// IsError reports that Body describes a failure.
	IsError bool `json:"is_error,omitempty"`
}
