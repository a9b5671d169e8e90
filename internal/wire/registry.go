package wire

import (
	"fmt"

	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// DecodeTool reads the announcement of a tool.
func DecodeTool(data []byte) (messages.Tool, error) {
	var t messages.Tool
	if err := strict.Decode(messages.MaxMessage, "tool", data, &t); err != nil {
		return messages.Tool{}, err
	}
	if err := session.ValidID("tool", t.Name); err != nil {
		return messages.Tool{}, &strict.Error{Message: "tool", Field: "name", Problem: messages.Text(err), Remedy: "choose a name of that kind"}
	}
	switch t.Effect {
	case "", "non_idempotent", "idempotent", "read_only", "sandboxed":
	default:
		return messages.Tool{}, &strict.Error{
			Message: "tool", Field: "effect", Problem: fmt.Sprintf("%q is none", excerpt.Start(t.Effect, 40)),
			Remedy: "send non_idempotent, idempotent, read_only or sandboxed",
		}
	}
	return t, nil
}

// WorkflowKey is the key of an offered workflow in the bucket REGISTRY.
func WorkflowKey(pool, name string) string { return "workflow." + pool + "." + name }

// ToolKey is the key of a tool in the bucket REGISTRY.
func ToolKey(t session.Tenant, name string) string { return "tool." + string(t) + "." + name }
