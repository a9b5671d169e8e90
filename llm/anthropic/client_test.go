package anthropic_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/session"
)

var update = flag.Bool("update", false, "write the golden files")

// server answers with a document, and records the request.
type server struct {
	*httptest.Server
	answer string
	body   []byte
	header http.Header
	path   string
}

func serve(t *testing.T, answer string) *server {
	s := &server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.body, _ = io.ReadAll(r.Body)
		s.header, s.path = r.Header.Clone(), r.URL.Path
		fmt.Fprint(w, s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) ask(t *testing.T, r *llm.Request) *llm.Response {
	t.Helper()
	models := anthropic.New(&llm.ServerOptions{Env: func(name string) string {
		return map[string]string{anthropic.EnvBase: s.URL, anthropic.EnvKey: "sk-ant-1"}[name]
	}})
	client := must.Get(models.Client(t.Context(), r.Provider))(t)
	resp := must.Get(client.Complete(t.Context(), r, nil))(t)
	return resp
}

func (s *server) golden(t *testing.T, name string) {
	t.Helper()
	var pretty bytes.Buffer
	must.Do(t, json.Indent(&pretty, s.body, "", "  "))
	pretty.WriteByte('\n')
	file := "testdata/" + name + ".json"
	if *update {
		must.Do(t, os.WriteFile(file, pretty.Bytes(), 0o644))
	}
	want := must.Get(os.ReadFile(file))(t)
	if diff := cmp.Diff(string(want), pretty.String()); diff != "" {
		t.Errorf("%s: %s", file, diff)
	}
}

const thoughts = `{"type":"message","model":"served","content":[
	{"type":"thinking","thinking":"Hm \"<x>\" 🙂","signature":"sig+/=="},
	{"type":"redacted_thinking","data":"hidden=="},
	{"type":"text","text":"I look."},
	{"type":"thinking","thinking":"","signature":"sig2"},
	{"type":"tool_use","id":"a","name":"f","input":{"x": 1}},
	{"type":"text","text":"And?"}
],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":2}}`

// TestBody: the bytes on the wire are kept as golden files.
func TestBody(t *testing.T) {
	s := serve(t, thoughts)
	full := &llm.Request{
		Provider: llm.Provider{
			Model: "m", Temperature: new(0.0), TopP: new(0.5), MaxTokens: 100, Stop: []string{"END"}, ReasoningEffort: "low",
			ParallelToolCalls: new(false), Extra: json.RawMessage(`{"top_k":3}`),
		},
		Tools:      []llm.ToolSpec{{Name: "f", Description: "does f", Schema: `{"type":"object","properties":{"x":{"type":"integer"}}}`}, {Name: "g"}},
		ToolChoice: "f",
		StepKey:    "run/1/2", Try: 2,
		Messages: []llm.Message{
			{Role: llm.System, Text: "You are <b>."},
			{Role: llm.System, Text: ""},
			{Role: llm.System, Text: "You are brief."},
			{Role: llm.User, Text: "hi"},
			{Role: llm.User, Text: "there"},
			{Role: llm.Assistant, Text: "", Calls: []session.ToolCall{{ID: "1", Name: "g"}, {ID: "functions.f:2", Name: "f", Args: "not json"}}},
			{Role: llm.System, Text: "It is late."},
			{Role: llm.Tool, CallID: "1", Text: ""},
			{Role: llm.Tool, CallID: "functions.f:2", Text: "done"},
			{Role: llm.Assistant, Text: ""},
			{Role: llm.User, Text: "go on"},
		},
	}
	resp := s.ask(t, full)
	s.golden(t, "full")
	if s.path != "/v1/messages" || s.header.Get("X-Api-Key") != "sk-ant-1" || s.header.Get("Authorization") != "" ||
		s.header.Get("Anthropic-Version") != "2023-06-01" || s.header.Get(llm.StepHeader) != "run/1/2" || s.header.Get(llm.TryHeader) != "2" {
		t.Errorf("%s, %v", s.path, s.header)
	}
	if resp.Text != "I look.And?" || resp.Reasoning != `Hm "<x>" 🙂` || resp.Finish != llm.FinishTools || resp.Model != "served" || resp.Calls[0].Args != `{"x":1}` {
		t.Errorf("%+v", resp)
	}

	// Thinking is sent back unchanged, at its place.
	next := &llm.Request{
		Provider: llm.Provider{Model: "m"},
		Messages: []llm.Message{{Role: llm.User, Text: "hi"}, resp.Message(), {Role: llm.Tool, CallID: "a", Text: "1"}},
	}
	s.ask(t, next)
	s.golden(t, "thinking")
	var sent struct {
		Messages []struct{ Content []json.RawMessage }
	}
	var came struct{ Content []any }
	if json.Unmarshal(s.body, &sent) != nil || json.Unmarshal([]byte(thoughts), &came) != nil {
		t.Fatal(string(s.body))
	}
	for i, b := range sent.Messages[1].Content {
		var got any
		if json.Unmarshal(b, &got) != nil || !cmp.Equal(got, came.Content[i]) {
			t.Errorf("block %d: %s went back for %v", i, b, came.Content[i])
		}
	}
	// Not to another server, and not beside a text that the server did not write.
	for name, change := range map[string]func(*llm.Message){
		"model": func(m *llm.Message) { m.Opaque = strings.ReplaceAll(m.Opaque, `"model":"m"`, `"model":"n"`) },
		"key":   func(m *llm.Message) { m.Opaque = strings.ReplaceAll(m.Opaque, `"key":"`, `"key":"0`) },
		"host":  func(m *llm.Message) { m.Opaque = strings.ReplaceAll(m.Opaque, "127.0.0.1", "127.0.0.2") },
		"text":  func(m *llm.Message) { m.Text = "I look. And?" },
		"call":  func(m *llm.Message) { m.Calls = []session.ToolCall{{ID: "b", Name: "f"}} },
	} {
		m := resp.Message()
		change(&m)
		s.ask(t, &llm.Request{Provider: llm.Provider{Model: "m"}, Messages: []llm.Message{{Role: llm.User, Text: "hi"}, m}})
		if bytes.Contains(s.body, []byte("sig")) || bytes.Contains(s.body, []byte("hidden")) {
			t.Errorf("another %s: %s", name, s.body)
		}
	}

	s.ask(t, &llm.Request{Provider: llm.Provider{Model: "m"}, Messages: llmtest.Pictured()})
	s.golden(t, "images")

	// A request with instructions alone.
	s.ask(t, &llm.Request{Provider: llm.Provider{Model: "m"}, Messages: []llm.Message{{Role: llm.System, Text: "Say ok."}}})
	if !bytes.Contains(s.body, []byte(`"messages":[{"role":"user","content":[{"type":"text","text":"Say ok.","cache_control":{"type":"ephemeral"}}]}]`)) {
		t.Errorf("%s", s.body)
	}
}

// TestBreakpoints: there are at most four, and the last but one ends the same prefix as
// the last one of the previous request.
func TestBreakpoints(t *testing.T) {
	s := serve(t, `{"type":"message","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`)
	r := &llm.Request{
		Provider: llm.Provider{Model: "m"}, Tools: []llm.ToolSpec{{Name: "f"}, {Name: "g"}},
		Messages: []llm.Message{{Role: llm.System, Text: "You are."}, {Role: llm.User, Text: "0"}},
	}
	mark := []byte(`,"cache_control":{"type":"ephemeral"}`)
	var ends []byte
	for i := range 4 {
		s.ask(t, r)
		if n := bytes.Count(s.body, mark); n > 4 || n < 3 {
			t.Errorf("request %d has %d breakpoints", i, n)
		}
		plain := bytes.ReplaceAll(s.body, mark, nil)
		if !bytes.HasPrefix(plain, ends) {
			t.Errorf("request %d: %s\ndoes not begin with %s", i, plain, ends)
		}
		ends = bytes.TrimSuffix(plain, []byte("]}"))
		call := fmt.Sprint("c", i)
		r.Messages = append(
			r.Messages, llm.Message{Role: llm.Assistant, Calls: []session.ToolCall{{ID: call, Name: "f"}}}, llm.Message{Role: llm.Tool, CallID: call, Text: "done"},
		)
	}
}

// TestBreakpointAtFork: a branch marks its fork, even within a turn of the user, until
// its first request.
func TestBreakpointAtFork(t *testing.T) {
	s := serve(t, `{"type":"message","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn"}`)
	text := func(role llm.Role, words string) llm.Message { return llm.Message{Role: role, Text: words} }
	const mark = `","cache_control":{"type":"ephemeral"}`
	for name, tt := range map[string]struct {
		shared int
		of     []llm.Message
		marked string // texts
	}{
		"no fork":            {0, []llm.Message{text("user", "a"), text("user", "b")}, "b"},
		"within a turn":      {2, []llm.Message{text("user", "a"), text("user", "b"), text("user", "c")}, "b c"},
		"after an answer":    {2, []llm.Message{text("user", "a"), text("assistant", "b"), text("user", "c")}, "b c"},
		"once it has asked":  {1, []llm.Message{text("user", "a"), text("user", "b"), text("assistant", "c"), text("user", "d")}, "b d"},
		"all is shared":      {1, []llm.Message{text("user", "a")}, "a"},
		"more than there is": {9, []llm.Message{text("user", "a"), text("user", "b")}, "b"},
	} {
		r := &llm.Request{Provider: llm.Provider{Model: "m"}, Tools: []llm.ToolSpec{{Name: "f"}}, Messages: append([]llm.Message{text("system", "You are.")}, tt.of...)}
		if tt.shared > 0 {
			r.Shared = tt.shared + 1
		}
		s.ask(t, r)
		_, body, _ := strings.Cut(string(s.body), `"messages":`)
		var marked []string
		for part := range strings.SplitSeq(body, mark) {
			marked = append(marked, part[strings.LastIndexByte(part, '"')+1:])
		}
		if got := strings.Join(marked[:len(marked)-1], " "); got != tt.marked || strings.Count(string(s.body), "cache_control") > 4 {
			t.Errorf("%s: marked are %q, want %q: %s", name, got, tt.marked, s.body)
		}
	}
}

// TestForm: an answer with a required form arrives as the arguments of a tool, and is
// returned as a text.
func TestForm(t *testing.T) {
	s := serve(t, `{"type":"message","content":[{"type":"tool_use","id":"x","name":"answer_in_this_form","input":{"a":1}}],"stop_reason":"tool_use"}`)
	r := &llm.Request{
		Provider: llm.Provider{Model: "m", ResponseFormat: json.RawMessage(`{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object","properties":{"a":{"type":"integer"}}}}}`)},
		Messages: []llm.Message{{Role: llm.User, Text: "hi"}},
	}
	resp := s.ask(t, r)
	s.golden(t, "form")
	if resp.Text != `{"a":1}` || len(resp.Calls) != 0 || resp.Finish != llm.FinishStop {
		t.Errorf("%+v", resp)
	}
	streamed, err := llmtest.Read(messages, llmtest.Data(
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x","name":"answer_in_this_form","input":{}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"1}"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"}}`,
	))
	if err != nil || streamed.Text != `{"a":1}` || len(streamed.Calls) != 0 || streamed.Finish != llm.FinishStop {
		t.Errorf("%+v, %v", streamed, err)
	}
	for choice, change := range map[string]func(*llm.Request){
		`{"type":"any",`:  func(r *llm.Request) { r.Tools = []llm.ToolSpec{{Name: "f"}} },
		`{"type":"auto",`: func(r *llm.Request) { r.Provider.Extra = json.RawMessage(`{"thinking":{"type":"enabled"}}`) },
	} {
		changed := *r
		change(&changed)
		s.ask(t, &changed)
		if !bytes.Contains(s.body, []byte(`"tool_choice":`+choice+`"disable_parallel_tool_use":true}`)) {
			t.Errorf("want %s: %s", choice, s.body)
		}
	}
}

func TestRefused(t *testing.T) {
	s := serve(t, "{}")
	hi := []llm.Message{{Role: llm.User, Text: "hi"}}
	for want, r := range map[string]*llm.Request{
		"want a json_schema": {Provider: llm.Provider{Model: "m", ResponseFormat: json.RawMessage(`{}`)}, Messages: hi},
		`"system" is set`:    {Provider: llm.Provider{Model: "m", Extra: json.RawMessage(`{"system":"x"}`)}, Messages: hi},
	} {
		models := anthropic.New(nil)
		client, err := models.Client(t.Context(), llm.Provider{Model: "m", BaseURL: s.URL})
		if err == nil {
			_, err = client.Complete(t.Context(), r, nil)
		}
		if llm.CodeOf(err) != llm.CodeInvalidRequest || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if s.body != nil {
		t.Errorf("sent: %s", s.body)
	}
	_, err := anthropic.New(nil).Client(t.Context(), llm.Provider{Model: "m"})
	if llm.CodeOf(err) != llm.CodeNoKey || !strings.Contains(err.Error(), "export ANTHROPIC_API_KEY=") {
		t.Errorf("%v", err)
	}
}
