package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

func TestErrorSurvivesAJournal(t *testing.T) {
	seen := map[llm.Code]bool{}
	for _, c := range llm.Codes() {
		if seen[c] {
			t.Errorf("code %s is listed twice", c)
		}
		seen[c] = true
		e := &llm.Error{Code: c, Status: 418, Message: `model "m": HTTP 418: teapot`}
		wrapped := fmt.Errorf("step 2: %w", e)
		back := llm.Rebuild(c, e.Error())
		if back.Error() != e.Error() {
			t.Errorf("%s: text %q became %q", c, e.Error(), back.Error())
		}
		for _, err := range []error{e, wrapped, back, llm.Rebuild(c, c.Error())} {
			if !errors.Is(err, c) || llm.CodeOf(err) != c || llm.Retryable(err) != e.Retryable() {
				t.Errorf("%v: not recognised as %s", err, c)
			}
			for other := range seen {
				if other != c && errors.Is(err, other) {
					t.Errorf("%v is %s and %s", err, c, other)
				}
			}
		}
		if got := llm.Rebuild(c, c.Error()).Error(); got != c.Error() {
			t.Errorf("bare code became %q", got)
		}
	}
	if llm.Retryable(nil) || llm.Retryable(context.Canceled) || llm.CodeOf(context.Canceled) != "" {
		t.Error("an ended context counts as a failed call")
	}
	if e := llm.Rebuild("from_the_future", "llm: from_the_future: x"); e.Retryable() || e.Message != "x" {
		t.Errorf("unknown code: %+v", e)
	}
}

// The codes are in journals: this list may only grow.
func TestCodesAreAppendOnly(t *testing.T) {
	var got []string
	for _, c := range llm.Codes() {
		got = append(got, string(c))
	}
	want := strings.Fields(`rate_limited overloaded unavailable timeout idle_timeout truncated malformed
		auth model_not_found invalid_request context_length refused quota no_model no_key`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCodeForStatus(t *testing.T) {
	for status, want := range map[int]llm.Code{
		200: "", 301: llm.CodeInvalidRequest, 400: llm.CodeInvalidRequest, 401: llm.CodeAuth, 402: llm.CodeQuota,
		403: llm.CodeAuth, 404: llm.CodeModelNotFound, 408: llm.CodeTimeout, 504: llm.CodeTimeout, 524: llm.CodeTimeout, 422: llm.CodeInvalidRequest,
		429: llm.CodeRateLimited, 500: llm.CodeUnavailable, 502: llm.CodeUnavailable, 503: llm.CodeOverloaded, 529: llm.CodeOverloaded,
	} {
		if got := llm.CodeForStatus(status); got != want {
			t.Errorf("%d: got %q, want %q", status, got, want)
		}
	}
}

func TestProviderValidate(t *testing.T) {
	good := []llm.Provider{
		{},
		{Model: "o3-local", BaseURL: "http://127.0.0.1:8000/v1", KeyRef: "MY_KEY"},
		{Temperature: new(0.0), TopP: new(1.0), MaxTokens: 1, Stop: []string{"\n"}},
		{Extra: json.RawMessage(`{"top_k": 3, "stream_options": null}`), ResponseFormat: json.RawMessage(`{"type":"json_object"}`)},
	}
	for _, p := range good {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	bad := map[string]llm.Provider{
		"model":             {Model: "a\nb"},
		"base_url":          {BaseURL: "localhost:8000"},
		"remove user":       {BaseURL: "http://u:hunter22@h/v1"},
		"key_ref":           {KeyRef: "sk-abcdefghijkl"},
		"temperature":       {Temperature: new(math.NaN())},
		"top_p":             {TopP: new(1.5)},
		"frequency_penalty": {FrequencyPenalty: new(-3.0)},
		"max_tokens":        {MaxTokens: -1},
		"stop":              {Stop: []string{""}},
		`logit_bias "word"`: {LogitBias: map[string]int{"word": 1}},
		"-100 to 100":       {LogitBias: map[string]int{"1": 101}},
		"response_format":   {ResponseFormat: json.RawMessage(`{`)},
		"extra: want":       {Extra: json.RawMessage(`[]`)},
		"null":              {Extra: json.RawMessage(`null`), Model: "null\x00"},
		`"messages"`:        {Extra: json.RawMessage(`{"messages":[]}`)},
	}
	for field, p := range bad {
		err := p.Validate()
		if !errors.Is(err, llm.CodeInvalidRequest) {
			t.Errorf("%s: accepted (%v)", field, err)
			continue
		}
		if field != "null" && !strings.Contains(err.Error(), field) {
			t.Errorf("%s: not named in %q", field, err)
		}
		if strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), "sk-abc") {
			t.Errorf("secret in %q", err)
		}
	}
}

func TestProviderEqualAndJSON(t *testing.T) {
	p := llm.Provider{
		Kind: "openai", Model: "m", BaseURL: "http://h/v1", KeyRef: "K", Temperature: new(0.0), TopP: new(0.5),
		FrequencyPenalty: new(0.1), PresencePenalty: new(0.2), Seed: new(int64(7)), MaxTokens: 9, Stop: []string{"x"},
		ReasoningEffort: "low", ParallelToolCalls: new(false), ResponseFormat: json.RawMessage(`{"a": 1}`), Extra: json.RawMessage(`{"b": 2}`),
	}
	data := must.Get(json.Marshal(p))(t)
	var q llm.Provider
	must.Do(t, json.Unmarshal(data, &q))
	if !p.Equal(q) || !q.Equal(p) {
		t.Errorf("changed by JSON: %s", data)
	}
	if empty, _ := json.Marshal(llm.Provider{}); string(empty) != "{}" {
		t.Errorf("zero provider is %s", empty)
	}
	for i, change := range []func(*llm.Provider){
		func(q *llm.Provider) { q.Kind = "" },
		func(q *llm.Provider) { q.Temperature = nil },
		func(q *llm.Provider) { q.Seed = new(int64(8)) },
		func(q *llm.Provider) { q.Stop = nil },
		func(q *llm.Provider) { q.Extra = json.RawMessage(`{"b": 3}`) },
		func(q *llm.Provider) { q.ResponseFormat = nil },
	} {
		r := q
		change(&r)
		if p.Equal(r) {
			t.Errorf("change %d not seen", i)
		}
	}
}

func TestRequestValidate(t *testing.T) {
	user := []llm.Message{{Role: llm.User, Text: "hi"}}
	bad := map[string]*llm.Request{
		"no messages":      {},
		`role "robot"`:     {Messages: []llm.Message{{Role: "robot"}}},
		"without a call":   {Messages: []llm.Message{{Role: llm.Tool}}},
		"tool calls":       {Messages: []llm.Message{{Role: llm.User, Calls: []session.ToolCall{{}}}}},
		"tool name":        {Messages: user, Tools: []llm.ToolSpec{{}}},
		"two tools":        {Messages: user, Tools: []llm.ToolSpec{{Name: "a"}, {Name: "a"}}},
		"not JSON":         {Messages: user, Tools: []llm.ToolSpec{{Name: "a", Schema: "{"}}},
		"no tool":          {Messages: user, ToolChoice: llm.ToolsRequired},
		"at most 16":       {Messages: user, N: 17},
		"n -1":             {Messages: user, N: -1},
		"0 to 20":          {Messages: user, Logprobs: new(21)},
		"not among":        {Messages: user, ToolChoice: "b", Tools: []llm.ToolSpec{{Name: "a"}}},
		"step key":         {Messages: user, StepKey: "a\r\nEvil: 1"},
		"provider: stop":   {Messages: user, Provider: llm.Provider{Stop: []string{""}}},
		"provider: top_p ": {Messages: user, Provider: llm.Provider{TopP: new(-1.0)}},
	}
	for want, r := range bad {
		if err := r.Validate(); !errors.Is(err, llm.CodeInvalidRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	ok := &llm.Request{
		Messages: append(user, llm.Message{Role: llm.Assistant, Calls: []session.ToolCall{{ID: "1", Name: "a"}}}, llm.Message{Role: llm.Tool, CallID: "1"}),
		Tools:    []llm.ToolSpec{{Name: "a", Schema: `{"type":"object"}`}}, ToolChoice: "a", StepKey: "r1/2.fast.0/1",
	}
	must.Report(t, ok.Validate())
}

func TestRedact(t *testing.T) {
	for in, secret := range map[string]string{
		"Incorrect API key provided: sk-proj-abcdefgh.":    "abcdefgh",
		"header Authorization: Bearer abc.def.ghi was bad": "abc.def.ghi",
		`{"api_key": "0123456789"}`:                        "0123456789",
		"GET http://user:pass@host/v1?key=qqqq&x=1":        "pass",
		"GET http://host/v1?key=qqqq&x=1":                  "qqqq",
		"the word correcthorse is the key":                 "correcthorse",
	} {
		got := llm.Redact(in, "correcthorse", "the")
		if strings.Contains(got, secret) || !strings.Contains(got, llm.Redacted) {
			t.Errorf("%q became %q", in, got)
		}
		if strings.Contains(in, "the ") && !strings.Contains(got, "the ") {
			t.Errorf("a short secret blanked words: %q", got)
		}
	}
	for _, plain := range []string{"risk-averse planning", "skip_this", "model m not found", "an API key is needed: set OPENAI_API_KEY"} {
		if got := llm.Redact(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

func TestClipAndClean(t *testing.T) {
	s := "héé🙂🙂"
	for n := -1; n <= len(s)+1; n++ {
		got := llm.Clip(s, n)
		body := strings.TrimSuffix(got, "…")
		if !utf8.ValidString(got) || len(body) > max(n, 0) || !strings.HasPrefix(s, body) {
			t.Errorf("Clip(%d) = %q", n, got)
		}
	}
	if got := llm.CleanText("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("got %q", got)
	}
}

func TestEstimate(t *testing.T) {
	for n, want := range map[int]int64{0: 0, 1: 1, 4: 1, 5: 2} {
		if got := llm.Estimate(n); got != want {
			t.Errorf("Estimate(%d) = %d", n, got)
		}
	}
}

type fixed string

func (f fixed) Client(context.Context, llm.Provider) (llm.Client, error) { return f, nil }

func (f fixed) Complete(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	return &llm.Response{Text: string(f), Finish: llm.FinishStop}, nil
}

func ExampleByKind() {
	models := llm.ByKind(map[string]llm.Models{"": fixed("default"), "local": fixed("local")})
	for _, kind := range []string{"", "local", "cloud"} {
		client, err := models.Client(context.Background(), llm.Provider{Kind: kind})
		if err != nil {
			fmt.Println(err)
			continue
		}
		resp, _ := client.Complete(context.Background(), &llm.Request{}, nil)
		fmt.Println(resp.Message().Text)
	}
	// Output:
	// default
	// local
	// llm: invalid_request: provider kind "cloud" is not configured; use one of: local
}

func ExampleRebuild() {
	err := error(&llm.Error{Code: llm.CodeContextLength, Message: `model "m": 9000 tokens, at most 8192`})
	code, text := llm.CodeOf(err), err.Error() // the values in a journal

	err = llm.Rebuild(code, text)
	fmt.Println(errors.Is(err, llm.CodeContextLength), llm.Retryable(err))
	fmt.Println(err)
	// Output:
	// true false
	// llm: context_length: model "m": 9000 tokens, at most 8192
}
