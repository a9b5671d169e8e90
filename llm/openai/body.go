package openai

import (
	"encoding/json"
	"regexp"
	"strings"

	api "github.com/sashabaranov/go-openai"

	"github.com/rathcluster/rath/internal/exchange"
	"github.com/rathcluster/rath/llm"
)

// The types here are go-openai's with those fields shadowed which it drops or
// writes in a form that strict servers refuse: zeros that mean something, an
// empty content, empty arguments, a tool without parameters.
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
		Role       string     `json:"role"`
		Content    any        `json:"content"` // a text, or parts
		Name       string     `json:"name,omitempty"`
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

// wireName is what the protocol accepts as the name of a speaker.
var wireName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// encode writes the body of r for the server e. Equal requests give equal
// bytes, and a longer transcript begins with the bytes of the shorter one:
// that is what prompt caches live on.
func encode(r *llm.Request, e *exchange.Endpoint) ([]byte, error) {
	p := r.Provider
	w := wireRequest{
		ChatCompletionRequest: api.ChatCompletionRequest{
			Model:           e.Model,
			Stream:          true,
			StreamOptions:   &api.StreamOptions{IncludeUsage: true},
			Stop:            p.Stop,
			ReasoningEffort: p.ReasoningEffort,
		},
		Messages:         make([]wireMessage, 0, len(r.Messages)),
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
	// OpenAI refuses max_tokens for its reasoning models and knows the newer
	// name for all of them; the others know the older name best.
	if isOpenAI(e.Host) {
		w.MaxCompletionTokens = p.MaxTokens
	} else {
		//lint:ignore SA1019 servers other than OpenAI know this name
		w.MaxTokens = p.MaxTokens
	}
	if knowsCacheKey(e.Host) {
		w.PromptCacheKey = r.CacheKey
	}
	for i := range r.Messages {
		m := encodeMessage(&r.Messages[i], e.Host)
		if p.SystemRole != "" && r.Messages[i].Role == llm.System {
			m.Role = p.SystemRole
		}
		w.Messages = append(w.Messages, m)
		if seen := seenBy(r.Messages, i); len(seen) > 0 {
			w.Messages = append(w.Messages, wireMessage{Role: string(llm.User), Content: parts(ofTools, seen)})
		}
	}
	for _, t := range r.Tools {
		w.Tools = append(w.Tools, api.Tool{Type: api.ToolTypeFunction, Function: &api.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: e.Schema(&p, &t),
		}})
	}
	switch r.ToolChoice {
	case "":
	case llm.ToolsAuto, llm.ToolsNone, llm.ToolsRequired:
		// Without tools a choice is an error to some servers.
		if len(r.Tools) > 0 {
			w.ToolChoice = r.ToolChoice
		}
	default:
		w.ToolChoice = api.ToolChoice{Type: api.ToolTypeFunction, Function: api.ToolFunction{Name: r.ToolChoice}}
	}
	return exchange.Body(w, p.Extra)
}

func encodeMessage(m *llm.Message, host string) wireMessage {
	w := wireMessage{Role: string(m.Role), Content: m.Text}
	if m.Role == llm.User && len(m.Images) > 0 {
		w.Content = parts(m.Text, m.Images)
	}
	switch {
	case m.Role == llm.Tool:
		w.ToolCallID = m.CallID
	case wireName.MatchString(m.Name):
		w.Name = m.Name
	}
	if len(m.Calls) > 0 {
		extra := openOpaque(m.Opaque, host)
		for _, c := range m.Calls {
			wc := wireCall{ToolCall: api.ToolCall{ID: c.ID, Type: api.ToolTypeFunction}, ExtraContent: extra[c.ID]}
			wc.Function = wireFunction{Name: c.Name, Arguments: c.Args}
			if strings.TrimSpace(c.Args) == "" {
				wc.Function.Arguments = "{}"
			}
			w.ToolCalls = append(w.ToolCalls, wc)
		}
	}
	return w
}

// ofTools stands before the images of the results of tools.
const ofTools = "Images of the results above:"

// seenBy returns the images of the results of tools that end with the message at an index,
// none within them: a result is text in the protocols of OpenAI, and nothing may come
// between the results that answer one message. So they follow as words of the user.
func seenBy(all []llm.Message, at int) (images []llm.Image) {
	if all[at].Role != llm.Tool || at+1 < len(all) && all[at+1].Role == llm.Tool {
		return nil
	}
	from := at
	for from > 0 && all[from-1].Role == llm.Tool {
		from--
	}
	for i := from; i <= at; i++ {
		images = append(images, all[i].Images...)
	}
	return images
}

// parts are a text and images as the content of a message.
func parts(text string, images []llm.Image) []api.ChatMessagePart {
	var all []api.ChatMessagePart
	if text != "" {
		all = append(all, api.ChatMessagePart{Type: api.ChatMessagePartTypeText, Text: text})
	}
	for i := range images {
		all = append(all, api.ChatMessagePart{Type: api.ChatMessagePartTypeImageURL, ImageURL: &api.ChatMessageImageURL{URL: images[i].DataURL()}})
	}
	return all
}

func isOpenAI(host string) bool { return host == "api.openai.com" || exchange.IsAzure(host) }

// knowsCacheKey tells where prompt_cache_key is known not to be an error.
func knowsCacheKey(host string) bool {
	for _, suffix := range []string{".openai.com", ".openai.azure.com", ".mistral.ai"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// opaque is the content of llm.Message.Opaque: what a server attached to its
// tool calls and wants back with them. It goes back to the same host only.
type opaque struct {
	OpenAI struct {
		Host  string                     `json:"host"`
		Calls map[string]json.RawMessage `json:"calls"` // by call id
	} `json:"openai"`
}

func sealOpaque(host string, calls map[string]json.RawMessage) string {
	if len(calls) == 0 {
		return ""
	}
	var o opaque
	o.OpenAI.Host, o.OpenAI.Calls = host, calls
	data, err := exchange.Marshal(o)
	if err != nil {
		return ""
	}
	return llm.CleanText(string(data))
}

func openOpaque(s, host string) map[string]json.RawMessage {
	var o opaque
	if s == "" || json.Unmarshal([]byte(s), &o) != nil || o.OpenAI.Host != host {
		return nil
	}
	return o.OpenAI.Calls
}
