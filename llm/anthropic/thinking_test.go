package anthropic_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/session"
)

// TestThinking: thinking is requested where the server accepts it.
func TestThinking(t *testing.T) {
	s := serve(t, `{"type":"message","content":[{"type":"thinking","thinking":"Hm.","signature":"sig"},{"type":"tool_use","id":"a","name":"f","input":{}}],"stop_reason":"tool_use"}`)
	const manual, adaptive = `{"thinking":{"type":"enabled","budget_tokens":9000},"top_k":3}`, `{"thinking":{"type":"adaptive"}}`
	ask := func(p llm.Provider, r llm.Request) (body struct {
		Thinking    struct{ Type string }
		MaxTokens   int `json:"max_tokens"`
		Temperature *float64
		TopK        int `json:"top_k"`
	},
	) {
		t.Helper()
		r.Provider, r.Provider.Model = p, "m"
		s.ask(t, &r)
		must.Do(t, json.Unmarshal(s.body, &body))
		return body
	}
	hi := []llm.Message{{Role: llm.User, Text: "hi"}}
	b := ask(llm.Provider{Extra: json.RawMessage(manual), Temperature: new(0.0)}, llm.Request{Messages: hi})
	if b.Thinking.Type != "enabled" || b.MaxTokens != anthropic.DefaultMaxTokens+9000 || b.Temperature != nil || b.TopK != 3 {
		t.Errorf("at the beginning: %s", s.body)
	}
	own := s.ask(t, &llm.Request{Provider: llm.Provider{Model: "m"}, Messages: hi}).Message()
	other := llm.Message{Role: llm.Assistant, Calls: []session.ToolCall{{ID: "b", Name: "f"}}}
	of := func(id string) llm.Message { return llm.Message{Role: llm.Tool, CallID: id, Text: "1"} }
	for _, tt := range []struct {
		name  string
		extra string
		r     llm.Request
		want  string
	}{
		{"its own loop", manual, llm.Request{Messages: append(hi, own, of("a"))}, "enabled"},
		{"a loop of another model", manual, llm.Request{Messages: append(hi, other, of("b"))}, ""},
		{"a loop that another model took over", manual, llm.Request{Messages: append(hi, own, of("a"), other, of("b"))}, ""},
		{"a person spoke within it", manual, llm.Request{Messages: append(hi, other, of("b"), hi[0])}, ""},
		{"the loop has ended", manual, llm.Request{Messages: append(hi, other, of("b"), llm.Message{Role: llm.Assistant, Text: "done"}, hi[0])}, "enabled"},
		{"its thoughts were refused", manual, llm.Request{Messages: append(hi, own, of("a")), ThoughtsFrom: 3}, ""},
		{"adaptive, of another model", adaptive, llm.Request{Messages: append(hi, other, of("b"))}, "adaptive"},
		{"adaptive, and refused", adaptive, llm.Request{Messages: append(hi, other, of("b")), ThoughtsFrom: 3}, ""},
		{"a tool is required", manual, llm.Request{Messages: hi, Tools: []llm.ToolSpec{{Name: "f"}}, ToolChoice: llm.ToolsRequired}, ""},
	} {
		if b := ask(llm.Provider{Extra: json.RawMessage(tt.extra)}, tt.r); b.Thinking.Type != tt.want {
			t.Errorf("%s: %q, want %q: %s", tt.name, b.Thinking.Type, tt.want, s.body)
		}
	}
}

// TestRefusedThoughts: the refusal of a request with thoughts is marked, and the request
// without them is accepted.
func TestRefusedThoughts(t *testing.T) {
	strict := &llmtest.StrictServer{Dialect: llmtest.AnthropicMessages}
	strict.Answer = func(_ []byte, mark string) string {
		return strict.Dialect.Document(mark, llmtest.Turn{Thought: "Hm.", Calls: []session.ToolCall{{ID: "a", Name: "f", Args: "{}"}}})
	}
	srv := httptest.NewServer(http.Handler(strict))
	defer srv.Close()
	p := llm.Provider{Model: "m", BaseURL: srv.URL, KeyRef: "K", Extra: json.RawMessage(`{"thinking":{"type":"enabled","budget_tokens":2000}}`)}
	key := "first"
	models := anthropic.New(&llm.ServerOptions{Key: func(string) (string, error) { return key, nil }})
	ask := func(r *llm.Request) (*llm.Response, error) {
		client := must.Get(models.Client(t.Context(), p))(t)
		return client.Complete(t.Context(), r, nil)
	}
	r := &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}
	resp, err := ask(r)
	must.Do(t, err)
	r.Messages = append(r.Messages, resp.Message(), llm.Message{Role: llm.Tool, CallID: "a", Text: "broken", Failed: true})
	must.Get(ask(r))(t)
	key = "another" // under the same name
	_, err = ask(r)
	if failed, ok := errors.AsType[*llm.Error](err); !ok || failed.Code != llm.CodeInvalidRequest || !failed.Thoughts {
		t.Fatalf("%#v", err)
	}
	r.ThoughtsFrom = len(r.Messages)
	must.Get(ask(r))(t)
}
