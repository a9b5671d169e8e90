package messages

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/session"
)

// The verbs of tools of other processes, on ToolControlSubject.
const (
	// VerbAnnounce puts a tool into the registry; the body is a Tool.
	VerbAnnounce = "announce"
	// VerbWithdraw takes it away; the body is empty.
	VerbWithdraw = "withdraw"
)

// The same as ParseControlSubject returns them.
const (
	VerbToolAnnounce = "tool." + VerbAnnounce
	VerbToolWithdraw = "tool." + VerbWithdraw
)

// Limits of tools of other processes.
const (
	MaxToolText      = 4 << 10  // bytes of a description
	MaxToolSchema    = 64 << 10 // bytes of a schema
	MaxToolTimeoutMS = 10 * 60 * 1000
	// ToolTimeoutMS is how long a call may take if its tool does not say.
	ToolTimeoutMS = 60 * 1000
)

// ToolCall is a request on a ToolSubject.
type ToolCall struct {
	// ID is the same on every attempt: a program that has done the call before
	// answers as it did then.
	ID      string `json:"id"`
	Attempt uint64 `json:"attempt"` // 1 for the first
	// Args is a JSON object that matches the announced schema.
	Args json.RawMessage `json:"args"`
}

// ToolAnswer is the answer to a ToolCall.
type ToolAnswer struct {
	// Body is any JSON; the model reads it. An absent one is null.
	Body json.RawMessage `json:"body,omitempty"`
	// IsError says that Body describes a failure.
	IsError bool `json:"is_error,omitempty"`
}

// ToolControlSubject is where a tool is announced and withdrawn.
func ToolControlSubject(t session.Tenant, user, name, verb string) string {
	return ControlPrefix + string(t) + "." + user + ".tool." + name + "." + verb
}

// Check says what is wrong with a tool that is announced under a name. What
// its schema means is not looked at.
func (t *Tool) Check(name string) error {
	bad := func(field, problem, remedy string) error {
		return &FieldError{Message: "tool", Field: field, Problem: problem, Remedy: remedy}
	}
	switch {
	case t.Name != name:
		return bad("name", fmt.Sprintf("%q is not what the subject says, %q", cleanText(t.Name, 80), name), "say the same")
	case t.Effect == "sandboxed":
		return bad("effect", "a tool of another process has no sandbox of ours", "send non_idempotent, idempotent or read_only")
	case strings.TrimSpace(t.Description) == "":
		return bad("description", "it is missing", "tell models what the tool does and when to call it")
	case len(t.Description) > MaxToolText:
		return bad("description", fmt.Sprintf("%d bytes, at most %d are taken", len(t.Description), MaxToolText), "shorten it")
	case len(t.Input) > MaxToolSchema:
		return bad("input", fmt.Sprintf("%d bytes, at most %d are taken", len(t.Input), MaxToolSchema), "make the schema simpler")
	case t.TimeoutMS < 0 || t.TimeoutMS > MaxToolTimeoutMS:
		return bad("timeout_ms", fmt.Sprintf("%d is not from 1 to %d", t.TimeoutMS, MaxToolTimeoutMS), fmt.Sprintf("leave it out for %d", ToolTimeoutMS))
	}
	return nil
}

// DecodeToolCall reads a call.
func DecodeToolCall(data []byte) (ToolCall, error) { return Decode[ToolCall]("tool call", data) }

// DecodeToolAnswer reads an answer, as strictly as everything that other
// programs send.
func DecodeToolAnswer(data []byte) (ToolAnswer, error) {
	var a ToolAnswer
	err := decodeWithin(MaxReply, "tool answer", data, &a)
	if err != nil {
		return ToolAnswer{}, err
	}
	if len(a.Body) == 0 {
		a.Body = json.RawMessage("null")
	}
	return a, nil
}
