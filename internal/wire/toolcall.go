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
