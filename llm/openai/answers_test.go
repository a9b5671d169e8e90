package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/llm/scripted"
	"github.com/rathcluster/rath/session"
)

// TestManyAnswers: the request parameters for several answers are sent, and interleaved
// answers are separated. The result is complete only if all answers are.
func TestManyAnswers(t *testing.T) {
	piece := func(index, text, rest string) string {
		return `{"model":"m1","choices":[{"index":` + index + `,"delta":{"content":"` + text + `"},"finish_reason":null` + rest + `}]}`
	}
	end := func(index, reason string) string {
		return `{"choices":[{"index":` + index + `,"delta":{},"finish_reason":"` + reason + `"}]}`
	}
	const used = `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6}}`
	var body map[string]any
	var stream string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if body = nil; json.Unmarshal(data, &body) != nil {
			t.Errorf("the request is %q", data)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream)
	}))
	defer srv.Close()
	p := llm.Provider{Model: "m1", BaseURL: srv.URL, LogitBias: map[string]int{"1734": -100, "50": 5}}
	r := &llm.Request{Provider: p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}, N: 3, Logprobs: new(2)}
	client := must.Get(openai.New(nil).Client(t.Context(), p))(t)
	probable := `,"logprobs":{"content":[{"token":"Hel","logprob":-0.5,"top_logprobs":[{"token":"Hel","logprob":-0.5},{"token":"\ud83d","logprob":-9999}]},{"token":"?","logprob":null}]}`
	stream = llmtest.Data(piece("1", "Hi", ""), piece("0", "Hel", probable), piece("7", "no", ""), piece("2", "", ""), piece("0", "lo", ""), end("2", "length"), end("0", "stop"), piece("1", " you", ""), end("1", "stop"), used, "[DONE]")
	var heard llmtest.Heard
	resp := must.Get(client.Complete(t.Context(), r, heard.Hear))(t)
	want := &llm.Response{
		Text: "Hello", Finish: "stop", Model: "m1", Usage: session.Usage{Input: 9, Output: 6},
		Logprobs: []llm.Logprob{{Token: "Hel", Logprob: -0.5, Top: []llm.Logprob{{Token: "Hel", Logprob: -0.5}, {Token: "\uFFFD", Logprob: -9999}}}},
		Others:   []llm.Response{{Text: "Hi you", Finish: "stop", Model: "m1"}, {Finish: "length", Model: "m1"}},
	}
	if diff := cmp.Diff(want, resp); diff != "" {
		t.Error(diff)
	}
	must.Report(t, heard.Agrees(resp))
	if body["n"] != 3.0 || body["logprobs"] != true || body["top_logprobs"] != 2.0 || cmp.Diff(body["logit_bias"], any(map[string]any{"1734": -100.0, "50": 5.0})) != "" {
		t.Errorf("the body is %v", body)
	}

	stream = llmtest.Data(piece("0", "Hello", ""), end("0", "stop"), piece("1", "Hi", ""), end("2", "stop"), "[DONE]")
	if _, err := client.Complete(t.Context(), r, nil); !errors.Is(err, llm.CodeTruncated) {
		t.Errorf("one of three answers breaks off: %v", err)
	}
	stream = llmtest.Data(piece("0", "Hello", probable), end("0", "stop"), "[DONE]")
	plain := &llm.Request{Provider: llm.Provider{Model: "m1"}, Messages: r.Messages}
	if resp, err := client.Complete(t.Context(), plain, nil); err != nil || resp.Logprobs != nil || len(body) != 4 {
		t.Errorf("%+v, %v of %v", resp, err, body)
	}
}

// TestUnsupported: a parameter that a protocol lacks is rejected before a request.
func TestUnsupported(t *testing.T) {
	asked := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer srv.Close()
	script := must.Get(scripted.New(nil, nil))(t)
	served := httptest.NewServer(script)
	defer served.Close()
	at := func(kind, url string) llm.Provider { return llm.Provider{Kind: kind, Model: "m", BaseURL: url} }
	for name, tt := range map[string]struct {
		models llm.Models
		p      llm.Provider
	}{
		"Anthropic's protocol":   {anthropic.New(nil), at("anthropic", srv.URL)},
		"the Responses protocol": {openai.New(nil), at(openai.KindResponses, srv.URL)},
		"a script":               {script, at("", "")},
		"a script ":              {openai.New(nil), at("", served.URL)},
	} {
		client := must.Get(tt.models.Client(t.Context(), tt.p))(t)
		for what, set := range map[string]func(*llm.Request){
			"n": func(r *llm.Request) { r.N = 2 }, "logprobs": func(r *llm.Request) { r.Logprobs = new(0) },
			"logit_bias": func(r *llm.Request) { r.Provider.LogitBias = map[string]int{"1": 1} },
		} {
			r := &llm.Request{Provider: tt.p, Messages: []llm.Message{{Role: llm.User, Text: "hi"}}}
			set(r)
			if _, err := client.Complete(t.Context(), r, nil); !errors.Is(err, llm.CodeInvalidRequest) || !strings.Contains(err.Error(), strings.TrimSpace(name)+" has no "+what) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	if asked > 0 {
		t.Errorf("%d requests", asked)
	}
}
