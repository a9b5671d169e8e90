package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/session"
)

// responses renders answers of the Responses protocol.
var responses = llmtest.Wire{
	Models: models,
	Kind:   openai.KindResponses,
	Last:   "[DONE]", // of proxies
	Events: func(parts ...llmtest.Part) []string {
		events := []string{`{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","model":"m1","output":[],"error":null}}`}
		s := stream{calls: map[int]int{}, open: -1}
		for _, p := range parts {
			events = append(events, s.events(p)...)
		}
		return events
	},
	Document: func(parts ...llmtest.Part) string {
		var list []string
		for _, p := range parts {
			switch {
			case p.Finish != "":
				return responseOf(p, strings.Join(list, ","))
			case p.Call != nil:
				list = append(list, `{"type":"function_call","call_id":"`+p.Call.ID+`","name":"`+p.Call.Name+`","arguments":"`+p.Call.Args+`"}`)
			default:
				list = append(list, `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"`+p.Text+`"}]}`)
			}
		}
		return ""
	},
}

// stream has the items of a stream in progress.
type stream struct {
	n, open int
	kind    string
	calls   map[int]int // the item of each call
}

func (s *stream) events(p llmtest.Part) (events []string) {
	switch {
	case p.Finish != "":
		return []string{`{"type":"response.` + map[bool]string{true: "completed", false: "incomplete"}[whole(p)] + `","response":` + responseOf(p, "") + `}`}
	case p.Call != nil:
		s.open = -1
		at, ok := s.calls[p.Index]
		if !ok {
			at = s.n
			s.n++
			s.calls[p.Index] = at
			events = append(events, fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"function_call","id":"fc","call_id":"%s","name":"%s","arguments":""}}`, at, p.Call.ID, p.Call.Name))
		}
		return append(events, fmt.Sprintf(`{"type":"response.function_call_arguments.delta","output_index":%d,"delta":"%s"}`, at, p.Call.Args))
	}
	kind, event, said := "message", "response.output_text.delta", p.Text
	if p.Reasoning != "" {
		kind, event, said = "reasoning", "response.reasoning_summary_text.delta", p.Reasoning
	}
	if s.open < 0 || s.kind != kind {
		s.open, s.kind = s.n, kind
		s.n++
		events = append(events, fmt.Sprintf(`{"type":"response.output_item.added","output_index":%d,"item":{"type":"%s"}}`, s.open, kind))
	}
	return append(events, fmt.Sprintf(`{"type":"%s","output_index":%d,"delta":"%s"}`, event, s.open, said))
}

func whole(p llmtest.Part) bool { return p.Finish == llm.FinishStop || p.Finish == llm.FinishTools }

func responseOf(p llmtest.Part, output string) string {
	status, why := "completed", "null"
	if !whole(p) {
		status, why = "incomplete", `{"reason":"`+map[llm.Finish]string{llm.FinishLength: "max_output_tokens", llm.FinishFilter: "content_filter"}[p.Finish]+`"}`
	}
	u := p.Usage
	return `{"object":"response","status":"` + status + `","incomplete_details":` + why + `,"error":null,"model":"m1","output":[` + output + `],"usage":` + fmt.Sprintf(
		`{"input_tokens":%d,"output_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d}}}`, u.Input, u.Output, u.CacheRead, u.CacheWrite)
}

func TestResponses(t *testing.T) {
	t.Parallel()
	const (
		added  = `{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}`
		hello  = `{"type":"response.output_text.delta","output_index":0,"delta":"Hello"}`
		end    = `{"type":"response.completed","response":{"status":"completed","model":"m1","output":[]}}`
		failed = `{"type":"response.failed","response":{"status":"failed","error":%s}}`
	)
	row := func(name string, want llmtest.Outcome, events ...string) llmtest.Row {
		return llmtest.Row{Name: name, Pieces: []string{llmtest.SSE, llmtest.Data(events...)}, Want: want}
	}
	said := llmtest.Outcome{Text: "Hello", Finish: "stop"}
	called := llmtest.Outcome{Calls: []session.ToolCall{{ID: "a", Name: "f", Args: `{"x":1}`}}, Finish: "tool_calls"}
	llmtest.Run(t, responses, []llmtest.Row{
		row("an item that did not begin", said, hello, end),
		row("an item in one piece", said, `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}`, end),
		row("an item in pieces and again", said, added, hello, `{"type":"response.output_text.done","output_index":0,"text":"Hello"}`, `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"Hello"}]}}`, end),
		row("everything with the end", said, strings.Replace(end, "[]", `[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]`, 1)),
		row("a refusal", llmtest.Outcome{Text: "No.", Finish: "refusal"}, added, `{"type":"response.refusal.delta","output_index":0,"delta":"No."}`, end),
		row("arguments in one piece", called, `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f"}}`, `{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{\"x\":1}"}`, end),
		row("arguments with the item", called, `{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","call_id":"a","name":"f","arguments":"{\"x\":1}"}}`, end),
		row("arguments of no call", llmtest.Outcome{Code: llm.CodeMalformed}, `{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{"}`),
		row("two thoughts", llmtest.Outcome{Reasoning: "Hm.\n\nOh.", Text: "Hello", Finish: "stop"}, `{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0}`, `{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"Hm."}`, `{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":1}`, `{"type":"response.reasoning_summary_text.delta","output_index":0,"delta":"Oh."}`, strings.ReplaceAll(hello, "0", "1"), end),
		row("events and items of tomorrow", said, `{"type":"response.dream"}`, `{"type":"response.output_item.done","output_index":7,"item":{"type":"dream"}}`, hello, end),
		row("a refusal with the end", llmtest.Outcome{Text: "No.", Finish: "refusal"}, strings.Replace(end, "[]", `[{"type":"message","content":[{"type":"refusal","refusal":"No."}]}]`, 1)),
		row("a status of tomorrow", llmtest.Outcome{Text: "Hello", Finish: "stop", Word: "satisfied"}, hello, strings.Replace(end, `"completed"`, `"satisfied"`, 1)),
		row("an end without a status", said, hello, `{"type":"response.completed","response":{"model":"m1"}}`),
		row("incomplete for a reason of tomorrow", llmtest.Outcome{Text: "Hello", Finish: "length", Word: "bored"}, hello, `{"type":"response.incomplete","response":{"status":"incomplete","model":"m1","incomplete_details":{"reason":"bored"}}}`),
		row("incomplete without a reason", llmtest.Outcome{Text: "Hello", Finish: "length"}, hello, `{"type":"response.incomplete","response":{"model":"m1"}}`),
		{Name: "a document without a status", Pieces: []string{llmtest.Head(200, "application/json"), `{"object":"response","output":[{"type":"message","content":[{"text":"Hel"}]}]}`}, Want: llmtest.Outcome{Code: llm.CodeUnavailable}},
		{Name: "a document with a status of tomorrow", Pieces: []string{llmtest.Head(200, "application/json"), `{"object":"response","model":"m1","status":"satisfied","output":[{"type":"message","content":[{"text":"Hello"}]}]}`}, Want: llmtest.Outcome{Text: "Hello", Finish: "stop", Word: "satisfied"}},
		{Name: "a document under way", Pieces: []string{llmtest.Head(200, "application/json"), `{"object":"response","status":"in_progress","output":[]}`}, Want: llmtest.Outcome{Code: llm.CodeUnavailable, Says: `broke off: "in_progress"`}},
		row("failed", llmtest.Outcome{Code: llm.CodeUnavailable, Says: "engine died"}, added, hello, fmt.Sprintf(failed, `{"code":"server_error","message":"engine died"}`)),
		row("failed by its rate", llmtest.Outcome{Code: llm.CodeRateLimited}, fmt.Sprintf(failed, `{"code":"rate_limit_exceeded","message":"slow down"}`)),
		row("failed without a word", llmtest.Outcome{Code: llm.CodeUnavailable, Says: `broke off: "failed"`}, fmt.Sprintf(failed, "null")),
		row("cancelled", llmtest.Outcome{Code: llm.CodeUnavailable, Says: `broke off: "cancelled"`}, strings.Replace(end, `"completed"`, `"cancelled"`, 1)),
		row("too many calls", llmtest.Outcome{Code: llm.CodeMalformed, Says: "more than 256 tool calls"}, slices.Collect(func(yield func(string) bool) {
			for i := 0; i < 300 && yield(`{"type":"response.output_item.added","output_index":`+strconv.Itoa(i)+`,"item":{"type":"function_call"}}`); i++ {
			}
		})...),
	})
}

func FuzzResponses(f *testing.F) {
	f.Add([]byte("data: " + `{"object":"response","status":"completed","output":[{"type":"reasoning","summary":[{"text":"a"}],"encrypted_content":"x"},{"type":"function_call","arguments":"{}"}]}` + "\n\n"))
	llmtest.Fuzz(f, responses)
}

const thoughtful = `{"object":"response","status":"completed","model":"served","output":[
	{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm <x>."}],"encrypted_content":"gAAA+/=="},
	{"type":"message","content":[{"type":"output_text","text":"I look."}]},
	{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"gBBB"},
	{"type":"reasoning","id":"rs_3","summary":[]},
	{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{\"x\": 1}"}
],"usage":{"input_tokens":9,"output_tokens":2,"input_tokens_details":{"cached_tokens":8}}}`

// TestResponsesBody: the bytes on the wire are kept as golden files, and encrypted
// thoughts are sent back at their places.
func TestResponsesBody(t *testing.T) {
	var body []byte
	var path string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		path = r.URL.Path
		fmt.Fprint(w, thoughtful)
	}))
	defer srv.Close()
	all := openai.New(nil)
	ask := func(r *llm.Request) (*llm.Response, error) {
		t.Helper()
		r.Provider.BaseURL, r.Provider.Kind = srv.URL+"/v1", openai.KindResponses
		client := must.Get(all.Client(t.Context(), r.Provider))(t)
		return client.Complete(t.Context(), r, nil)
	}
	golden := func(name string) {
		t.Helper()
		var pretty bytes.Buffer
		must.Do(t, json.Indent(&pretty, body, "", "  "))
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
	resp, err := ask(&llm.Request{
		Provider: llm.Provider{
			Model: "m", Temperature: new(0.7), TopP: new(0.0), MaxTokens: 100, ReasoningEffort: "low", ParallelToolCalls: new(false), SystemRole: "developer",
			ResponseFormat: json.RawMessage(`{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}}`),
			Extra:          json.RawMessage(`{"truncation":"auto"}`),
		},
		Tools:      []llm.ToolSpec{{Name: "f", Description: "does f", Schema: `{"type":"object"}`}, {Name: "g"}},
		ToolChoice: "f", CacheKey: "k",
		Messages: []llm.Message{
			{Role: llm.System, Text: "You are <b>."},
			{Role: llm.User, Text: "hi"},
			{Role: llm.Assistant, Text: "Yes.", Calls: []session.ToolCall{{ID: "1", Name: "g"}}},
			{Role: llm.Tool, CallID: "1", Text: ""},
		},
	})
	if err != nil || resp.Text != "I look." || resp.Reasoning != "Hm <x>." || resp.Finish != llm.FinishTools || resp.Usage.CacheRead != 8 || resp.Model != "served" {
		t.Fatalf("%+v, %v", resp, err)
	}
	golden("responses")
	if path != "/v1/responses" {
		t.Errorf("asked %s", path)
	}
	next := &llm.Request{Provider: llm.Provider{Model: "m"}, Messages: []llm.Message{{Role: llm.User, Text: "hi"}, resp.Message(), {Role: llm.Tool, CallID: "a", Text: "1"}}}
	must.Get(ask(next))(t)
	golden("thoughts")
	// gpt-4o has no thoughts, rejects requests for them, and accepts none of another
	// model.
	next.Provider.Model = "gpt-4o"
	must.Get(ask(next))(t)
	if bytes.Contains(body, []byte("encrypted")) {
		t.Errorf("%s", body)
	}
	must.Get(ask(&llm.Request{Provider: llm.Provider{Model: "gpt-4o"}, Messages: llmtest.Pictured()}))(t)
	golden("pictured")
	_, err = ask(&llm.Request{Provider: llm.Provider{Model: "m", Stop: []string{"x"}}, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}})
	if llm.CodeOf(err) != llm.CodeInvalidRequest || !strings.Contains(err.Error(), "no stop sequences") {
		t.Error(err)
	}
}
