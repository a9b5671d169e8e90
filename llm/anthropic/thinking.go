package anthropic

import (
	"encoding/json"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// thinking is the member of a body that requests thoughts.
type thinking struct {
	Type   string `json:"type"`
	Budget int    `json:"budget_tokens"`
}

const (
	manual   = "enabled"
	adaptive = "adaptive"
)

// thinkingOf returns the thinking that a provider's extra members request, and the
// members.
func thinkingOf(extra json.RawMessage) (thinking, json.RawMessage) {
	var o struct {
		Thinking thinking `json:"thinking"`
	}
	_ = json.Unmarshal(extra, &o) // the server rejects a member of another type
	return o.Thinking, extra
}

func (t thinking) asked() bool { return t.Type == manual || t.Type == adaptive }

// allowed reports whether the server accepts a request for thoughts with the
// transcript, and whether the transcript ends within a loop of tools.
//
// With thinking no tool can be required. With a budget the newest answer of a loop must
// begin with its thought, so a loop that another model took over continues without
// thoughts until the next message of the user ends it. An adaptive model may begin
// without a thought.
func (t thinking) allowed(r *llm.Request, lines []exchange.Line) (looped, ok bool) {
	if len(r.Tools) > 0 && r.ToolChoice != "" && r.ToolChoice != llm.ToolsAuto && r.ToolChoice != llm.ToolsNone {
		return false, false
	}
	for i := len(lines) - 1; i >= 0; i-- {
		switch l := &lines[i]; {
		case l.Role == llm.Tool:
			looped = true
		case l.Role == llm.Assistant && !looped:
			return false, true
		case l.Role == llm.Assistant:
			return true, l.Thinks() || t.Type == adaptive && l.At >= r.ThoughtsFrom
		}
	}
	return false, true
}

// fit sets the settings that the server requires beside thinking: space for an answer
// after the thoughts, and no temperature.
func (t thinking) fit(w *request) {
	if t.Budget >= w.MaxTokens {
		w.MaxTokens += t.Budget
	}
	w.Temperature = nil
	if w.TopP != nil && *w.TopP < 0.95 {
		w.TopP = nil
	}
}

// without returns a JSON object without a member.
func without(object json.RawMessage, member string) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	delete(all, member)
	return exchange.Marshal(all)
}
