package wire

import (
	"encoding/json"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
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

// DecodeToolCall reads a call.
func DecodeToolCall(data []byte) (ToolCall, error) {
	return messages.Decode[ToolCall]("tool call", data)
}

// DecodeToolAnswer reads an answer, as strictly as everything that other
// programs send.
func DecodeToolAnswer(data []byte) (ToolAnswer, error) {
	var a ToolAnswer
	err := strict.Decode(messages.MaxReply, "tool answer", data, &a)
	if err != nil {
		return ToolAnswer{}, err
	}
	if len(a.Body) == 0 {
		a.Body = json.RawMessage("null")
	}
	return a, nil
}
