package wire

import (
	"encoding/json"

	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
)

// DecodeToolCall reads a call.
func DecodeToolCall(data []byte) (messages.ToolCall, error) {
	return messages.Decode[messages.ToolCall]("tool call", data)
}

// ToolCancel is a message on a messages.ToolCancelSubject: nobody waits for the answer to a
// call any more, because its run was cancelled or its time is up. Each program of the tool
// gets it.
type ToolCancel struct {
	ID      string `json:"id"` // of the call
	Attempt uint64 `json:"attempt"`
	Reason  string `json:"reason,omitempty"`
}

// DecodeToolCancel reads the end of a call.
func DecodeToolCancel(data []byte) (ToolCancel, error) {
	return messages.Decode[ToolCancel]("tool cancel", data)
}

// DecodeToolAnswer reads an answer, as strictly as all messages of other programs.
func DecodeToolAnswer(data []byte) (messages.ToolAnswer, error) {
	var a messages.ToolAnswer
	err := strict.Decode(messages.MaxReply, "tool answer", data, &a)
	if err != nil {
		return messages.ToolAnswer{}, err
	}
	if len(a.Body) == 0 {
		a.Body = json.RawMessage("null")
	}
	return a, nil
}
