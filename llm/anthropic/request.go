package anthropic

import (
	"encoding/json"

	"github.com/rathcluster/rath/internal/exchange"
	"github.com/rathcluster/rath/llm"
)

type request struct {
	Model         string    `json:"model"`
	MaxTokens     int       `json:"max_tokens"`
	Stream        bool      `json:"stream"`
	Tools         []tool    `json:"tools,omitempty"`
	ToolChoice    *choice   `json:"tool_choice,omitempty"`
	System        []block   `json:"system,omitempty"`
	Messages      []message `json:"messages"`
	Temperature   *float64  `json:"temperature,omitempty"`
	TopP          *float64  `json:"top_p,omitempty"`
	StopSequences []string  `json:"stop_sequences,omitempty"`
	OutputConfig  *output   `json:"output_config,omitempty"`
}

type tool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl *ephemeral      `json:"cache_control,omitempty"`
}

type choice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

type output struct {
	Effort string `json:"effort"`
}

// ephemeral marks the end of a prefix that the server is to keep. A request may have four.
type ephemeral struct {
	Type string `json:"type"`
}

var breakpoint = &ephemeral{"ephemeral"}

// encode writes the body of r. Equal requests give equal bytes.
func encode(r *llm.Request, e *exchange.Endpoint) ([]byte, error) {
	p := &r.Provider
	switch {
	case len(p.ResponseFormat) > 0:
		return nil, e.Fail(llm.CodeInvalidRequest, 0, "this protocol has no response_format: leave it out, or have the answer as the arguments of a tool that must be called")
	case len(r.Tools) > 0 && r.ToolChoice != "" && r.ToolChoice != llm.ToolsAuto && r.ToolChoice != llm.ToolsNone && thinks(p.Extra):
		return nil, e.Fail(llm.CodeInvalidRequest, 0, "with thinking no tool can be required; leave out the tool choice, or thinking")
	}
	w := request{
		Model: e.Model, MaxTokens: p.MaxTokens, Stream: true,
		Temperature: p.Temperature, TopP: p.TopP, StopSequences: p.Stop, ToolChoice: chosen(r),
	}
	if w.MaxTokens == 0 {
		w.MaxTokens = DefaultMaxTokens
	}
	if p.ReasoningEffort != "" {
		w.OutputConfig = &output{p.ReasoningEffort}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		w.Tools = append(w.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: exchange.Schema(t)})
	}
	if n := len(w.Tools); n > 0 {
		w.Tools[n-1].CacheControl = breakpoint
	}
	w.System, w.Messages = transcript(r.Messages, e.Host)
	return exchange.Body(w, p.Extra)
}

// thinks reports whether a request asks for thinking, which forbids to force a tool.
func thinks(extra json.RawMessage) bool {
	var o struct {
		Thinking struct {
			Type string `json:"type"`
		} `json:"thinking"`
	}
	return json.Unmarshal(extra, &o) == nil && o.Thinking.Type == "enabled"
}

func chosen(r *llm.Request) *choice {
	if len(r.Tools) == 0 {
		return nil
	}
	single := r.Provider.ParallelToolCalls != nil && !*r.Provider.ParallelToolCalls
	switch r.ToolChoice {
	case "":
		if !single {
			return nil
		}
		return &choice{Type: "auto", DisableParallel: true}
	case llm.ToolsAuto:
		return &choice{Type: "auto", DisableParallel: single}
	case llm.ToolsNone:
		return &choice{Type: "none"}
	case llm.ToolsRequired:
		return &choice{Type: "any", DisableParallel: single}
	default:
		return &choice{Type: "tool", Name: r.ToolChoice, DisableParallel: single}
	}
}
