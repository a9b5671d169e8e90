package openai

import (
	"encoding/json"
	"regexp"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// KindResponses is the kind of a provider whose server speaks the Responses protocol; all
// other kinds are chat completions.
const KindResponses = "openai-responses"

// encodeResponses writes the body of r for the Responses protocol. The server stores no
// state: the request has the transcript, including its thoughts, encrypted. thoughts
// reports whether there are any.
func encodeResponses(r *llm.Request, e *exchange.Endpoint) (body []byte, thoughts bool, err error) {
	p := &r.Provider
	if len(p.Stop) > 0 {
		return nil, false, e.Fail(llm.CodeInvalidRequest, 0, "the Responses protocol has no stop sequences: omit the provider's stop, or use kind openai")
	}
	format, err := textFormat(e.ResponseFormat(p))
	if err != nil {
		return nil, false, e.Fail(llm.CodeInvalidRequest, 0, "response_format: %v", err)
	}
	lines, thoughts := e.Legalize(KindResponses, r, responsesRules)
	w := api.CreateResponseRequest{
		Model: e.Model, Stream: true, Store: new(false),
		Input:           items(lines, p.SystemRole),
		MaxOutputTokens: p.MaxTokens, ParallelToolCalls: p.ParallelToolCalls,
		Temperature: narrow(p.Temperature), TopP: narrow(p.TopP),
		PromptCacheKey: r.CacheKey, Text: format,
	}
	if p.ReasoningEffort != "" {
		w.Reasoning = &api.ResponseReasoning{Effort: p.ReasoningEffort}
	}
	if !silent.MatchString(e.Model) {
		w.Include = []api.ResponseInclude{api.ResponseIncludeReasoningEncryptedContent}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		// Without "strict" the server would require a strict schema.
		about := map[string]any{"name": t.Name, "parameters": e.Schema(p, t), "strict": false}
		if t.Description != "" {
			about["description"] = t.Description
		}
		w.Tools = append(w.Tools, api.ResponseTool{Type: api.ToolTypeFunction, Parameters: about})
	}
	switch {
	case r.ToolChoice == "" || len(r.Tools) == 0:
	case r.ToolChoice == llm.ToolsAuto, r.ToolChoice == llm.ToolsNone, r.ToolChoice == llm.ToolsRequired:
		w.ToolChoice = r.ToolChoice
	default:
		w.ToolChoice = map[string]string{"type": "function", "name": r.ToolChoice}
	}
	body, err = exchange.Body(w, p.Extra)
	return body, thoughts, err
}

// responsesRules are the protocol's demands on a transcript.
var responsesRules = exchange.Rules{IDs: regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)}

// silent are the models that reject a request for encrypted thoughts: they have none.
var silent = regexp.MustCompile(`^(gpt-3\.5|gpt-4|chatgpt-4)`)

func narrow(v *float64) *float32 {
	if v == nil {
		return nil
	}
	return new(float32(*v))
}

// items are the lines as input.
func items(lines []exchange.Line, systemRole string) []any {
	list := []any{} // never null
	for i := range lines {
		l := &lines[i]
		switch l.Role {
		case llm.Tool:
			text := l.Text
			if l.Failed {
				text = exchange.ErrorText(text)
			}
			list = append(list, api.ResponseFunctionCallOutput{Type: "function_call_output", CallID: l.CallID, Output: text})
		case llm.Assistant:
			list = append(list, said(l)...)
		default:
			role := string(l.Role)
			if l.Role == llm.System && systemRole != "" {
				role = systemRole
			}
			list = append(list, api.ResponseInputMessage{Role: role, Content: input(l.Text, l.Images)})
		}
	}
	return list
}

// input is the content of a message: a text, or a text and images.
func input(text string, images []llm.Image) any {
	if len(images) == 0 {
		return text
	}
	var all []any
	if text != "" {
		all = append(all, api.ResponseInputText{Type: "input_text", Text: text})
	}
	for i := range images {
		all = append(all, api.ResponseInputImage{Type: "input_image", ImageURL: images[i].DataURL()})
	}
	return all
}

// said are the items of an assistant's message.
func said(l *exchange.Line) (list []any) {
	for _, p := range l.Parts {
		switch {
		case p.Call != nil:
			list = append(list, api.ResponseOutputItem{Type: "function_call", CallID: p.Call.ID, Name: p.Call.Name, Arguments: p.Call.Args})
		case p.Raw != nil:
			list = append(list, p.Raw)
		default:
			list = append(list, api.ResponseInputMessage{Role: "assistant", Content: p.Text})
		}
	}
	return list
}

// textFormat translates the response_format of chat completions to that of this
// protocol, which has no nested object.
func textFormat(raw json.RawMessage) (*api.ResponseTextConfig, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var chat struct {
		Type   string `json:"type"`
		Schema struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      bool            `json:"strict"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &chat); err != nil {
		return nil, err
	}
	f := &api.ResponseTextFormat{Type: chat.Type, Name: chat.Schema.Name, Description: chat.Schema.Description, Strict: chat.Schema.Strict}
	if len(chat.Schema.Schema) > 0 {
		f.Schema = chat.Schema.Schema
	}
	return &api.ResponseTextConfig{Format: f}, nil
}
