//lint:file-ignore ST1005 the errors have the words of the servers

package llmtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/rathcluster/rath/session"
)

// Dialect is a protocol as the servers of one maker check it. Its rules are of 2026.
type Dialect string

// The dialects. Those of chat completions all require the results of each answer's
// calls directly after it, one for each call, names of tools in [a-zA-Z0-9_-]{1,64},
// and schemas of objects.
const (
	// OpenAIChat is chat completions at OpenAI: ids of calls have at most 40 characters, and
	// no message has thoughts.
	OpenAIChat Dialect = "openai"
	// MistralChat is chat completions at Mistral: ids of calls are nine letters and
	// digits, neither a user nor instructions follow a result, an assistant's message
	// is not empty and not the last one, and unknown members are rejected.
	MistralChat Dialect = "mistral"
	// TemplateChat is chat completions at a server whose template supports one
	// instruction, at the beginning, then a user and an assistant who take turns.
	// Arguments are JSON objects, and the last message is the user's or a tool's.
	TemplateChat Dialect = "template"
	// ThinkingChat is a TemplateChat whose model thinks: reasoning_content is required
	// with each answer once there is any, never an empty one, nor one of another
	// server.
	ThinkingChat Dialect = "thinking"
	// OpenAIResponses is the Responses protocol at OpenAI: an item of reasoning is its
	// own and is followed by an item of the assistant, ids of calls are unique and have
	// at most 64 characters of [a-zA-Z0-9_-], and each call has one output.
	OpenAIResponses Dialect = "openai-responses"
	// AnthropicMessages is the Messages protocol at Anthropic: no text is blank, the messages
	// begin and end with the user and alternate, ids of calls are unique, each call has its
	// result at the beginning of the next message, a failed one with a text and no image,
	// thoughts are its own and not the end of a message, and the settings beside thinking and
	// the last answer of a loop fit it.
	AnthropicMessages Dialect = "anthropic"
)

// Dialects returns all of them.
func Dialects() []Dialect {
	return []Dialect{OpenAIChat, MistralChat, TemplateChat, ThinkingChat, OpenAIResponses, AnthropicMessages}
}

// Check returns the reason why a server of the dialect rejects a request with the body;
// nil if it accepts the request. A thought in the body is the server's own if it has
// the mark.
func (d Dialect) Check(body []byte, mark string) error {
	switch d {
	case AnthropicMessages:
		return checkMessages(body, mark)
	case OpenAIResponses:
		return checkResponses(body, mark)
	}
	return d.checkChat(body, mark)
}

// StrictServer is a model's server that rejects the requests that servers of its
// dialect reject, with their status and form of an error. It answers with whole
// documents.
type StrictServer struct {
	Dialect Dialect
	// Answer returns the answer to an accepted request, as a document of the protocol. A
	// thought in it has the mark. nil answers ok, after a thought where the dialect has thoughts.
	Answer func(body []byte, mark string) string
	// Refused is called with each rejected request and the reason; nil ignores them. It
	// is called concurrently if requests are.
	Refused func(body []byte, why error)
}

// ServeHTTP implements [http.Handler].
func (s *StrictServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	var head struct {
		Model string `json:"model"`
	}
	_ = json.Unmarshal(body, &head) // Check reports it
	mark := Mark(r.Host, head.Model, r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
	w.Header().Set("Content-Type", "application/json")
	if err := s.Dialect.Check(body, mark); err != nil {
		if s.Refused != nil {
			s.Refused(body, err)
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":%s}}`, quote(err.Error()))
		return
	}
	answer := s.Answer
	if answer == nil {
		answer = func(_ []byte, mark string) string { return s.Dialect.Document(mark, Turn{Thought: "Hm.", Text: "ok"}) }
	}
	fmt.Fprint(w, answer(body, mark))
}

// Mark is the mark in the thoughts of a model at a server for the owner of a key.
func Mark(host, model, key string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + model + "\x00" + key))
	return "mark" + hex.EncodeToString(sum[:6])
}

// Turn is an answer.
type Turn struct {
	Thought string // "" is none
	Text    string
	Calls   []session.ToolCall
}

// Document renders an answer as a whole document of the dialect, with a thought that has
// the mark, where the dialect has thoughts.
func (d Dialect) Document(mark string, t Turn) string {
	switch d {
	case AnthropicMessages:
		return messagesDocument(mark, t)
	case OpenAIResponses:
		return responsesDocument(mark, t)
	}
	m := map[string]any{"role": "assistant", "content": t.Text}
	if d == ThinkingChat && t.Thought != "" {
		m["reasoning_content"] = t.Thought + " " + mark
	}
	end := "stop"
	var calls []any
	for _, c := range t.Calls {
		calls = append(calls, map[string]any{"id": c.ID, "type": "function", "function": map[string]string{"name": c.Name, "arguments": c.Args}})
	}
	if calls != nil {
		m["tool_calls"], end = calls, "tool_calls"
	}
	return marshal(map[string]any{
		"object": "chat.completion", "model": Model, "choices": []any{map[string]any{"index": 0, "message": m, "finish_reason": end}},
		"usage": map[string]int{"prompt_tokens": 9, "completion_tokens": 2},
	})
}

func responsesDocument(mark string, t Turn) string {
	var out []any
	if t.Thought != "" {
		out = append(out, map[string]any{"type": "reasoning", "id": "rs_1", "summary": []any{}, "encrypted_content": mark})
	}
	if t.Text != "" {
		out = append(out, map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": t.Text}}})
	}
	for _, c := range t.Calls {
		out = append(out, map[string]any{"type": "function_call", "id": "fc_1", "call_id": c.ID, "name": c.Name, "arguments": c.Args})
	}
	return marshal(map[string]any{
		"object": "response", "status": "completed", "model": Model, "output": out, "usage": map[string]int{"input_tokens": 9, "output_tokens": 2},
	})
}

func messagesDocument(mark string, t Turn) string {
	out, end := []any{}, "end_turn"
	if t.Thought != "" {
		out = append(out, map[string]any{"type": "thinking", "thinking": t.Thought, "signature": mark})
	}
	if t.Text != "" {
		out = append(out, map[string]any{"type": "text", "text": t.Text})
	}
	for _, c := range t.Calls {
		input := json.RawMessage(c.Args)
		if !isObject(c.Args) {
			input = json.RawMessage("{}")
		}
		out, end = append(out, map[string]any{"type": "tool_use", "id": c.ID, "name": c.Name, "input": input}), "tool_use"
	}
	return marshal(map[string]any{
		"type": "message", "role": "assistant", "model": Model, "content": out, "stop_reason": end, "usage": map[string]int{"input_tokens": 9, "output_tokens": 2},
	})
}

func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // of this package's own values
	}
	return string(data)
}

func quote(s string) string { return marshal(s) }

func isObject(s string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(s), &o) == nil && o != nil
}

var (
	shortName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	longName  = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	plainID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
	nineID    = regexp.MustCompile(`^[a-zA-Z0-9]{9}$`)
)

// checkSchema checks the schema of a tool's arguments.
func checkSchema(tool string, raw json.RawMessage, without ...string) error {
	var s map[string]json.RawMessage
	if json.Unmarshal(raw, &s) != nil || string(s["type"]) != `"object"` {
		return fmt.Errorf(`Invalid schema for function '%s': schema must be a JSON Schema of 'type: "object"'`, tool)
	}
	for _, k := range without {
		if _, ok := s[k]; ok {
			return fmt.Errorf("Invalid schema for function '%s': no %s at the top level", tool, k)
		}
	}
	return nil
}
