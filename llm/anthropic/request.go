package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"

	"github.com/rathcluster/rath/internal/models/exchange"
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

// ephemeral marks the end of a prefix that the server should cache. A request may have
// four.
type ephemeral struct {
	Type string `json:"type"`
}

var breakpoint = &ephemeral{"ephemeral"}

// encode writes the body of r. Equal requests give equal bytes. refusable reports
// whether the thoughts of earlier answers, or their lack, can cause the server to
// reject it.
func encode(r *llm.Request, e *exchange.Endpoint) (body []byte, refusable bool, err error) {
	p := &r.Provider
	form, err := formOf(e.ResponseFormat(p))
	if err != nil {
		return nil, false, e.Fail(llm.CodeInvalidRequest, 0, "response_format: %v", err)
	}
	lines, refusable := e.Legalize(wire, r, rules)
	think, extra := thinkingOf(p.Extra)
	if think.asked() {
		looped, allowed := think.allowed(r, lines)
		if refusable = refusable || looped; !allowed {
			think = thinking{}
			if extra, err = without(p.Extra, "thinking"); err != nil {
				return nil, false, e.Fail(llm.CodeInvalidRequest, 0, "extra: %v", err)
			}
		}
	}
	w := request{
		Model: e.Model, MaxTokens: cmp.Or(p.MaxTokens, DefaultMaxTokens), Stream: true,
		Temperature: p.Temperature, TopP: p.TopP, StopSequences: p.Stop, ToolChoice: chosen(r),
	}
	if think.asked() {
		think.fit(&w)
	}
	if p.ReasoningEffort != "" {
		w.OutputConfig = &output{p.ReasoningEffort}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		w.Tools = append(w.Tools, tool{Name: t.Name, Description: t.Description, InputSchema: e.Schema(p, t)})
	}
	if form != nil && r.ToolChoice != llm.ToolsNone {
		w.Tools, w.ToolChoice = append(w.Tools, *form), formed(r, think.asked())
	}
	if n := len(w.Tools); n > 0 {
		w.Tools[n-1].CacheControl = breakpoint
	}
	w.System, w.Messages = transcript(lines, r.Shared)
	body, err = exchange.Body(w, extra)
	return body, refusable, err
}

// formTool is a tool whose arguments are the answer, for an answer with a required
// form: the protocol has no other way to require one. The caller gets the arguments as
// text.
const formTool = "answer_in_this_form"

// formOf makes a tool from a response_format of OpenAI's protocol; nil if there is
// none.
func formOf(format json.RawMessage) (*tool, error) {
	if len(format) == 0 {
		return nil, nil
	}
	var f struct {
		Type   string `json:"type"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(format, &f); err != nil {
		return nil, err
	}
	schema := f.Schema.Schema
	switch {
	case f.Type == "text":
		return nil, nil
	case f.Type == "json_object":
		schema = json.RawMessage(`{"type":"object"}`)
	case f.Type != "json_schema" || len(schema) == 0:
		return nil, errors.New("want a json_schema with a schema, or json_object")
	}
	return &tool{Name: formTool, Description: "Gives your final answer to the user.", InputSchema: schema}, nil
}

// formed is the choice for an answer with a required form: the form, or another tool
// before it.
func formed(r *llm.Request, thinks bool) *choice {
	switch {
	case thinks: // then none can be required
		return &choice{Type: "auto", DisableParallel: true}
	case len(r.Tools) == 0:
		return &choice{Type: "tool", Name: formTool, DisableParallel: true}
	case r.ToolChoice == "" || r.ToolChoice == llm.ToolsAuto:
		return &choice{Type: "any", DisableParallel: true}
	}
	return chosen(r)
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
