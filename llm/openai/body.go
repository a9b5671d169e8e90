package openai

import (
	"encoding/json"
	"strings"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
)

// The types here are go-openai's. They shadow the fields that go-openai drops or writes
// in a form that strict servers reject: meaningful zeros, an empty content, empty
// arguments, a tool without parameters.
type (
	wireRequest struct {
		api.ChatCompletionRequest
		Messages         []wireMessage   `json:"messages"`
		Temperature      *float64        `json:"temperature,omitempty"`
		TopP             *float64        `json:"top_p,omitempty"`
		FrequencyPenalty *float64        `json:"frequency_penalty,omitempty"`
		PresencePenalty  *float64        `json:"presence_penalty,omitempty"`
		Seed             *int64          `json:"seed,omitempty"`
		ResponseFormat   json.RawMessage `json:"response_format,omitempty"`
		PromptCacheKey   string          `json:"prompt_cache_key,omitempty"`
	}
	wireMessage struct {
		Role    string `json:"role"`
		Content any    `json:"content"` // a text, or parts
		Name    string `json:"name,omitempty"`
		thought
		ToolCalls  []wireCall `json:"tool_calls,omitempty"`
		ToolCallID string     `json:"tool_call_id,omitempty"`
	}
	wireCall struct {
		api.ToolCall
		Function     wireFunction    `json:"function"`
		ExtraContent json.RawMessage `json:"extra_content,omitempty"`
	}
	wireFunction struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
)

// encode writes the body of r for the server e. Equal requests give equal bytes, and a
// longer transcript begins with the bytes of the shorter one, as prompt caches require.
// thoughts reports whether it includes thoughts of earlier answers.
func encode(r *llm.Request, e *exchange.Endpoint) (body []byte, thoughts bool, err error) {
	p := r.Provider
	w := wireRequest{
		ChatCompletionRequest: api.ChatCompletionRequest{
			Model:           e.Model,
			Stream:          true,
			StreamOptions:   &api.StreamOptions{IncludeUsage: true},
			Stop:            p.Stop,
			ReasoningEffort: p.ReasoningEffort,
		},
		Temperature:      p.Temperature,
		TopP:             p.TopP,
		FrequencyPenalty: p.FrequencyPenalty,
		PresencePenalty:  p.PresencePenalty,
		Seed:             p.Seed,
		ResponseFormat:   e.ResponseFormat(&p),
	}
	w.LogitBias = p.LogitBias
	if r.N > 1 {
		w.N = r.N
	}
	if r.Logprobs != nil {
		w.LogProbs, w.TopLogProbs = true, *r.Logprobs
	}
	if p.ParallelToolCalls != nil {
		w.ParallelToolCalls = *p.ParallelToolCalls
	}
	// OpenAI rejects max_tokens for its reasoning models and accepts the newer name for
	// all of them. The other servers support the older name best.
	if isOpenAI(e.Host) {
		w.MaxCompletionTokens = p.MaxTokens
	} else {
		//lint:ignore SA1019 servers other than OpenAI know this name
		w.MaxTokens = p.MaxTokens
	}
	if knowsCacheKey(e.Host) {
		w.PromptCacheKey = r.CacheKey
	}
	w.Messages, thoughts = messages(r, e)
	for _, t := range r.Tools {
		w.Tools = append(w.Tools, api.Tool{Type: api.ToolTypeFunction, Function: &api.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: e.Schema(&p, &t),
		}})
	}
	switch r.ToolChoice {
	case "":
	case llm.ToolsAuto, llm.ToolsNone, llm.ToolsRequired:
		// Without tools a choice is an error for some servers.
		if len(r.Tools) > 0 {
			w.ToolChoice = r.ToolChoice
		}
	default:
		w.ToolChoice = api.ToolChoice{Type: api.ToolTypeFunction, Function: api.ToolFunction{Name: r.ToolChoice}}
	}
	body, err = exchange.Body(w, p.Extra)
	return body, thoughts, err
}

// parts are a text and images as the content of a message, after others.
func parts(all []api.ChatMessagePart, text string, images []llm.Image) []api.ChatMessagePart {
	if text != "" {
		all = append(all, api.ChatMessagePart{Type: api.ChatMessagePartTypeText, Text: text})
	}
	for i := range images {
		all = append(all, api.ChatMessagePart{Type: api.ChatMessagePartTypeImageURL, ImageURL: &api.ChatMessageImageURL{URL: images[i].DataURL()}})
	}
	return all
}

func isOpenAI(host string) bool { return host == "api.openai.com" || exchange.IsAzure(host) }

// knowsCacheKey reports whether a host is known to accept prompt_cache_key.
func knowsCacheKey(host string) bool {
	for _, suffix := range []string{".openai.com", ".openai.azure.com", ".mistral.ai"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}
