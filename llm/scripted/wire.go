package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/internal/models/exchange"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

// chatRequest is the relevant part of a chat completion request.
type chatRequest struct {
	Model    string        `json:"model"`
	Messages []chatMessage `json:"messages"`
	Tools    []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	N             int             `json:"n"`
	Logprobs      bool            `json:"logprobs"`
	LogitBias     map[string]int  `json:"logit_bias"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	ToolCalls  []chatCall      `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
}

// request translates the request; it rejects parameters that the scripted model does
// not support rather than ignore them.
func (c *chatRequest) request() (*llm.Request, error) {
	r := &llm.Request{Provider: llm.Provider{Model: c.Model}}
	for i, m := range c.Messages {
		out := llm.Message{Role: llm.Role(m.Role), Name: m.Name, CallID: m.ToolCallID}
		switch m.Role {
		case "developer":
			out.Role = llm.System
		case "function":
			out.Role = llm.Tool
		}
		text, err := contentText(m.Content)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		out.Text = text
		for _, t := range m.ToolCalls {
			out.Calls = append(out.Calls, session.ToolCall{ID: t.ID, Name: t.Function.Name, Args: t.Function.Arguments})
		}
		r.Messages = append(r.Messages, out)
	}
	r.Messages = spoken(r.Messages)
	for _, t := range c.Tools {
		r.Tools = append(r.Tools, llm.ToolSpec{Name: t.Function.Name, Description: t.Function.Description, Schema: string(t.Function.Parameters)})
	}
	r.N, r.Provider.LogitBias = c.N, c.LogitBias
	if c.Logprobs {
		r.Logprobs = new(int)
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r, r.Unsupported("a script")
}

// spoken returns the messages without the user texts that a client adds for servers
// that require one: a script is written for the transcript.
func spoken(all []llm.Message) []llm.Message {
	out := all[:0]
	for i, m := range all {
		before, after := llm.System, llm.Assistant
		if i > 0 {
			before = all[i-1].Role
		}
		if i+1 < len(all) {
			after = all[i+1].Role
		}
		if m.Role == llm.User && after == llm.Assistant && (m.Text == exchange.GoOn && before == llm.Assistant || m.Text == exchange.Opening && before == llm.System) {
			continue
		}
		out = append(out, m)
	}
	return out
}

// contentText reads a content that is a string, null, or a list of parts, of which only
// texts count.
func contentText(raw json.RawMessage) (string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", errors.New("content is neither a string nor a list of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

// chatAnswer is a chat completion or, with deltas, a chunk of one.
type chatAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index        int         `json:"index"`
	Message      *chatSpoken `json:"message,omitempty"`
	Delta        *chatSpoken `json:"delta,omitempty"`
	FinishReason *llm.Finish `json:"finish_reason"`
}

type chatSpoken struct {
	Role             string     `json:"role,omitempty"`
	Content          *string    `json:"content,omitempty"`
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []chatCall `json:"tool_calls,omitempty"`
}

type chatCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatUsage struct {
	PromptTokens        int64 `json:"prompt_tokens"`
	CompletionTokens    int64 `json:"completion_tokens"`
	TotalTokens         int64 `json:"total_tokens"`
	PromptTokensDetails struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens,omitempty"`
	} `json:"prompt_tokens_details"`
	// Cost is in US dollars, as some routers report it.
	Cost float64 `json:"cost,omitempty"`
}

func wireUsage(u session.Usage) *chatUsage {
	w := &chatUsage{PromptTokens: u.Input, CompletionTokens: u.Output, TotalTokens: u.Tokens(), Cost: float64(u.MicroUSD) / 1e6}
	w.PromptTokensDetails.CachedTokens = u.CacheRead
	w.PromptTokensDetails.CacheWriteTokens = u.CacheWrite
	return w
}

func wireCall(index *int, id, name, args string) chatCall {
	c := chatCall{Index: index, ID: id}
	if id != "" {
		c.Type = "function"
	}
	c.Function.Name, c.Function.Arguments = name, args
	return c
}

// wireDelta is a piece as a delta of the protocol.
func wireDelta(d llm.Delta) *chatSpoken {
	s := &chatSpoken{ReasoningContent: d.Reasoning}
	if d.Text != "" {
		s.Content = &d.Text
	}
	if c := d.Call; c != nil {
		s.ToolCalls = []chatCall{wireCall(&d.Index, c.ID, c.Name, c.Args)}
	}
	return s
}

// wireMessage is a whole answer as a message of the protocol.
func wireMessage(r *llm.Response) *chatSpoken {
	s := &chatSpoken{Role: "assistant", Content: &r.Text, ReasoningContent: r.Reasoning}
	for _, c := range r.Calls {
		s.ToolCalls = append(s.ToolCalls, wireCall(nil, c.ID, c.Name, c.Args))
	}
	return s
}

// chatError is the protocol's form of an error.
type chatError struct {
	Error struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    string `json:"code"`
	} `json:"error"`
}

func wireError(e *llm.Error) chatError {
	var w chatError
	w.Error.Message, w.Error.Type, w.Error.Code = e.Message, "api_error", string(e.Code)
	// The names that servers of this protocol use for the same things.
	switch e.Code {
	case llm.CodeContextLength:
		w.Error.Code = "context_length_exceeded"
	case llm.CodeQuota:
		w.Error.Code = "insufficient_quota"
	case llm.CodeRefused:
		w.Error.Code = "content_filter"
	case llm.CodeRateLimited:
		w.Error.Code = "rate_limit_exceeded"
	case llm.CodeInvalidRequest:
		w.Error.Type = "invalid_request_error"
	}
	return w
}
