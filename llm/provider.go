package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on provider data: bytes, and keywords to omit from schemas.
const (
	MaxNameLen  = 256
	MaxExtraLen = 64 << 10
	MaxOmitted  = 64
)

// Provider names a model and its settings. It is plain data: it may be
// copied, compared with [Provider.Equal], stored and sent to another node. It
// is written by the author of a workflow, so it may name keys but never holds
// one. The zero Provider is the default of the process.
//
// Only set fields are sent. Pointers distinguish "0" from "not set":
//
//	llm.Provider{Model: "gpt-5.5", Temperature: new(0.0)}
type Provider struct {
	// Kind selects the protocol ("openai", "anthropic", "scripted", ...); "" is the
	// process's default.
	Kind string `json:"kind,omitempty"`
	// Model is the model's name; "" is the process's default.
	Model string `json:"model,omitempty"`
	// BaseURL is the API's root, usually ending in /v1; "" is the process's
	// default.
	BaseURL string `json:"base_url,omitempty"`
	// KeyRef is the *name* of the API key in the configuration or in the
	// environment of the process that makes the call.
	KeyRef string `json:"key_ref,omitempty"`

	Temperature      *float64 `json:"temperature,omitempty"`
	TopP             *float64 `json:"top_p,omitempty"`
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"`
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`
	Seed             *int64   `json:"seed,omitempty"`
	// LogitBias makes tokens, by their number in the model's vocabulary, more or less
	// likely: from -100, which forbids a token, to 100.
	LogitBias map[string]int `json:"logit_bias,omitempty"`
	// MaxTokens limits the completion; 0 is the server's default.
	MaxTokens int      `json:"max_tokens,omitempty"`
	Stop      []string `json:"stop,omitempty"`
	// ReasoningEffort is the server's word, such as "low" or "high".
	ReasoningEffort   string `json:"reasoning_effort,omitempty"`
	ParallelToolCalls *bool  `json:"parallel_tool_calls,omitempty"`
	// SystemRole is the server's name of the role of instructions: "developer", or ""
	// for system.
	SystemRole string `json:"system_role,omitempty"`
	// SchemaOmit are keywords of JSON Schema that the server rejects, such as
	// additionalProperties. They are left out of the schemas of tools and answers that
	// are sent to it. Answers are checked against the complete schemas.
	SchemaOmit []string `json:"schema_omit,omitempty"`
	// Failures are signs of classes of failures for the server's own words. They take
	// precedence over those of the clients.
	Failures []FailureRule `json:"failures,omitempty"`
	// Timeouts bound its calls; one of 0 has the default of the process.
	Timeouts Timeouts `json:"timeouts,omitzero"`
	// ResponseFormat is the JSON of the protocol's response_format.
	ResponseFormat json.RawMessage `json:"response_format,omitempty"`
	// Extra is a JSON object whose members are added to the request's body last: they
	// take precedence over the fields above, and null removes a member.
	Extra json.RawMessage `json:"extra,omitempty"`
}

// reserved are the members of a request that determine its meaning; Extra must not
// contain them.
var reserved = []string{"input", "messages", "model", "n", "stream", "system", "tools", "tool_choice"}

// Validate checks p without contacting the server. It returns an *Error with
// CodeInvalidRequest that names the field.
func (p Provider) Validate() error {
	for _, f := range []struct{ name, value string }{
		{"kind", p.Kind},
		{"model", p.Model},
		{"base_url", p.BaseURL},
		{"key_ref", p.KeyRef},
		{"reasoning_effort", p.ReasoningEffort},
	} {
		if len(f.value) > MaxNameLen || !printable(f.value) {
			return invalid("provider: %s %q: want at most %d printable bytes", f.name, Clip(f.value, 40), MaxNameLen)
		}
	}
	if p.BaseURL != "" {
		u, err := url.Parse(p.BaseURL)
		switch {
		case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
			return invalid("provider: base_url %q: want a URL such as http://localhost:8000/v1", Clip(Redact(p.BaseURL), 80))
		case u.User != nil, u.RawQuery != "", u.Fragment != "":
			return invalid("provider: base_url of host %s: remove user, query and fragment; a key goes into the variable that key_ref names", u.Host)
		}
	}
	if strings.HasPrefix(p.KeyRef, "sk-") {
		return invalid("provider: key_ref holds a key; want the name of an environment variable, such as OPENAI_API_KEY")
	}
	for _, f := range []struct {
		name     string
		value    *float64
		min, max float64
	}{
		{"temperature", p.Temperature, 0, 5},
		{"top_p", p.TopP, 0, 1},
		{"frequency_penalty", p.FrequencyPenalty, -2, 2},
		{"presence_penalty", p.PresencePenalty, -2, 2},
	} {
		// This form of the condition makes NaN fail too.
		if f.value != nil && !(*f.value >= f.min && *f.value <= f.max) {
			return invalid("provider: %s %v: want %v to %v", f.name, *f.value, f.min, f.max)
		}
	}
	if p.MaxTokens < 0 {
		return invalid("provider: max_tokens %d: want 0 or more", p.MaxTokens)
	}
	if p.SystemRole != "" && p.SystemRole != "developer" {
		return invalid("provider: system_role %q: want developer, or leave it out", Clip(p.SystemRole, 40))
	}
	if len(p.SchemaOmit) > MaxOmitted || slices.ContainsFunc(p.SchemaOmit, func(k string) bool { return k == "" || len(k) > 64 || !printable(k) }) {
		return invalid("provider: schema_omit: want at most %d keywords of JSON Schema, each of 1 to 64 printable bytes", MaxOmitted)
	}
	if err := p.Timeouts.Validate(); err != nil {
		return invalid("provider: timeouts: %v", err)
	}
	if len(p.Failures) > MaxFailures {
		return invalid("provider: failures: %d rules: want at most %d", len(p.Failures), MaxFailures)
	}
	for i := range p.Failures {
		if err := p.Failures[i].Validate(); err != nil {
			return invalid("provider: failures: %v", err)
		}
	}
	if len(p.Stop) > 16 || slices.Contains(p.Stop, "") {
		return invalid("provider: stop: want at most 16 sequences, none empty")
	}
	if len(p.LogitBias) > MaxBiased {
		return invalid("provider: logit_bias: %d tokens: want at most %d", len(p.LogitBias), MaxBiased)
	}
	for token, bias := range p.LogitBias {
		if token == "" || len(token) > 10 || strings.Trim(token, "0123456789") != "" || bias < -100 || bias > 100 {
			return invalid("provider: logit_bias %q: %d: want the number of a token, and -100 to 100", Clip(token, 40), bias)
		}
	}
	if len(p.ResponseFormat) > MaxExtraLen || len(p.ResponseFormat) > 0 && !json.Valid(p.ResponseFormat) {
		return invalid("provider: response_format: want JSON of at most %d bytes", MaxExtraLen)
	}
	if len(p.Extra) > 0 {
		var m map[string]json.RawMessage
		if len(p.Extra) > MaxExtraLen || json.Unmarshal(p.Extra, &m) != nil || m == nil {
			return invalid("provider: extra: want a JSON object of at most %d bytes", MaxExtraLen)
		}
		for _, k := range reserved {
			if _, ok := m[k]; ok {
				return invalid("provider: extra: member %q is set by the request itself", k)
			}
		}
	}
	return nil
}

// Equal reports whether p and q are equivalent. JSON members are compared without
// regard to white space.
func (p Provider) Equal(q Provider) bool {
	return p.Kind == q.Kind && p.Model == q.Model && p.BaseURL == q.BaseURL && p.KeyRef == q.KeyRef &&
		same(p.Temperature, q.Temperature) && same(p.TopP, q.TopP) &&
		same(p.FrequencyPenalty, q.FrequencyPenalty) && same(p.PresencePenalty, q.PresencePenalty) &&
		same(p.Seed, q.Seed) && maps.Equal(p.LogitBias, q.LogitBias) && p.MaxTokens == q.MaxTokens && slices.Equal(p.Stop, q.Stop) &&
		p.ReasoningEffort == q.ReasoningEffort && p.SystemRole == q.SystemRole && slices.Equal(p.SchemaOmit, q.SchemaOmit) && slices.EqualFunc(p.Failures, q.Failures, FailureRule.equal) && p.Timeouts == q.Timeouts && same(p.ParallelToolCalls, q.ParallelToolCalls) &&
		sameJSON(p.ResponseFormat, q.ResponseFormat) && sameJSON(p.Extra, q.Extra)
}

// Validate checks r without contacting the server: the provider, roles, tool names and
// schemas. It returns an *Error with CodeInvalidRequest that names the problem.
func (r *Request) Validate() error {
	if err := r.Provider.Validate(); err != nil {
		return err
	}
	if len(r.Messages) == 0 {
		return invalid("request: no messages")
	}
	for i, m := range r.Messages {
		switch m.Role {
		case System, User, Assistant:
		case Tool:
			if m.CallID == "" {
				return invalid("request: message %d is a tool result without a call id", i)
			}
		default:
			return invalid("request: message %d has role %q", i, Clip(string(m.Role), 40))
		}
		if len(m.Calls) > 0 && m.Role != Assistant {
			return invalid("request: message %d has role %s and tool calls", i, m.Role)
		}
	}
	names := make(map[string]bool, len(r.Tools))
	for _, t := range r.Tools {
		if t.Name == "" || len(t.Name) > MaxNameLen || !printable(t.Name) {
			return invalid("request: tool name %q: want 1 to %d printable bytes", Clip(t.Name, 40), MaxNameLen)
		}
		if names[t.Name] {
			return invalid("request: two tools are named %q", t.Name)
		}
		names[t.Name] = true
		if t.Schema != "" && !json.Valid([]byte(t.Schema)) {
			return invalid("request: the schema of tool %q is not JSON", t.Name)
		}
	}
	switch r.ToolChoice {
	case "", ToolsAuto, ToolsNone:
	case ToolsRequired:
		if len(r.Tools) == 0 {
			return invalid("request: a tool call is required but no tool is offered")
		}
	default:
		if !names[r.ToolChoice] {
			return invalid("request: tool choice %q is not among the offered tools", Clip(r.ToolChoice, 40))
		}
	}
	if r.N < 0 || r.N > MaxAnswers {
		return invalid("request: n %d: want at most %d answers", r.N, MaxAnswers)
	}
	if r.Logprobs != nil && (*r.Logprobs < 0 || *r.Logprobs > MaxLogprobs) {
		return invalid("request: logprobs %d: want 0 to %d", *r.Logprobs, MaxLogprobs)
	}
	if len(r.StepKey) > MaxNameLen || !printable(r.StepKey) || len(r.CacheKey) > MaxNameLen || !printable(r.CacheKey) {
		return invalid("request: step key and cache key: want at most %d printable bytes", MaxNameLen)
	}
	return nil
}

// Unsupported returns an error for the first of n, logprobs and logit_bias that r
// requests and can does not include; nil if there is none. Clients of protocols that
// lack some of them call it, so that no parameter is silently ignored.
func (r *Request) Unsupported(protocol string, can ...string) error {
	for _, f := range []struct {
		name  string
		asked bool
	}{{"n", r.N > 1}, {"logprobs", r.Logprobs != nil}, {"logit_bias", len(r.Provider.LogitBias) > 0}} {
		if f.asked && !slices.Contains(can, f.name) {
			return invalid("model %q: %s has no %s; leave it out, or use a model of kind openai", Clip(r.Provider.Model, 80), protocol, f.name)
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &Error{Code: CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// printable reports whether s can be a header's value and a word in a
// message: UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

func same[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}
