package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/engine/toolserver"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/openai"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// refuses answers each request with a status and a body.
type refuses struct {
	status int
	body   string
}

func (s *refuses) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: s.status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: io.NopCloser(strings.NewReader(s.body)),
	}, nil
}

// TestServerFailureCodes: a run that ends with a failure of its model's server has the
// class of the failure as its code. If the server rejects the content, the run has the
// code of a model's refusal.
func TestServerFailureCodes(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
		code   run.Code
	}{
		{400, `{"error":{"message":"The response was filtered","code":"content_filter","status":400}}`, run.CodeRefused},
		{403, `{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged","metadata":{"reasons":["violence"]}}}`, run.CodeRefused},
		{400, `{"error":{"message":"unknown field","code":"invalid_value"}}`, "invalid_request"},
		{401, `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`, "auth"},
		{429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`, "quota"},
		{404, `{"error":{"message":"The model m1 does not exist","code":"model_not_found"}}`, "model_not_found"},
		{503, `{"error":{"message":"The server is overloaded"}}`, "overloaded"},
		{500, `{"error":{"message":"The server is away"}}`, run.CodeModelUnavailable},
	} {
		synctest.Test(t, func(t *testing.T) { // tries have pauses between them
			var w world
			m := openai.New(&llm.ServerOptions{BaseURL: "http://model.test/v1", DefaultModel: "m1", Transport: &refuses{tt.status, tt.body}})
			_, _, state, err := w.run1(t, m, &flow.Agent{Name: "a"}, nil)
			ended := facts[journal.Ended](t, &w, journal.KindEnded)
			if state != run.Failed || len(ended) != 1 || ended[0].Code != tt.code || ended[0].Finish != "" {
				t.Errorf("%d %s: the run is %s, %+v: %v; want the code %s", tt.status, tt.body, state, ended, err, tt.code)
			}
		})
	}
}

// TestTypedContinuation: a cut answer with a format is continued without the format, and
// an answer that the model starts again replaces the cut part.
func TestTypedContinuation(t *testing.T) {
	type verdict struct {
		Why string `json:"why"`
		OK  bool   `json:"ok"`
	}
	for name, second := range map[string]string{"continued": `half","ok":true}`, "begun again": `{"why":"half and half","ok":true}`} {
		m := &answers{all: []llm.Response{{Text: `{"why":"half and `, Finish: llm.FinishLength}, saying(second)}}
		var got verdict
		var w world
		_, _, state, err := w.run1(t, m, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, v, err := flow.Ask[verdict](ctx, s, &flow.Agent{Name: "judge"})
			got = v
			return s, err
		}), nil)
		if state != run.Succeeded || got != (verdict{"half and half", true}) {
			t.Errorf("%s: the run is %s with %+v: %v", name, state, got, err)
		}
		if len(m.seen) != 2 || len(m.seen[0].Provider.ResponseFormat) == 0 || len(m.seen[1].Provider.ResponseFormat) != 0 {
			t.Errorf("%s: %d requests, the second one with a form: %v", name, len(m.seen), len(m.seen) == 2 && len(m.seen[1].Provider.ResponseFormat) > 0)
		}
	}
}

// pieces is a model whose answer streams in pieces of a number of bytes.
type pieces struct {
	text string
	size int
}

func (p *pieces) Client(context.Context, llm.Provider) (llm.Client, error) { return p, nil }

func (p *pieces) Complete(_ context.Context, _ *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	for piece := range slices.Chunk([]byte(p.text), p.size) {
		sink(llm.Delta{Text: string(piece)})
	}
	return &llm.Response{Text: p.text, Finish: llm.FinishStop, Usage: session.Usage{Input: 1, Output: 1}}, nil
}

// TestLiveThoughts: thoughts that a model writes into its text are not part of the answer
// that deltas and Hooks.Partial show while it streams, however it is split into pieces.
func TestLiveThoughts(t *testing.T) {
	for _, tt := range []struct {
		text, prompt   string
		answer, hidden string
	}{
		{text: "<think>\nsecret plan\n</think>\n\nThe answer is 4.", answer: "The answer is 4.", hidden: "secret"},
		{text: " \n<seed:think>secret</seed:think>4 < 5", answer: "4 < 5", hidden: "secret"},
		{text: "[THINK]se</THINK>cret[/THINK]\n4", answer: "4", hidden: "cret"},
		{text: "secret plan\n</think>\n\nThe answer.", answer: "The answer.", hidden: "secret"},
		{text: "<thinks of it>", answer: "<thinks of it>", hidden: "</"},
		{text: "<thi", answer: "<thi", hidden: "</"},
		{text: "plain\n</think>s are not it", answer: "plain\n</think>s are not it", hidden: "\x00"},
		{text: "about <think> and\n</think>\n", answer: "about <think> and\n</think>\n", hidden: "\x00"},
		{text: "<think>wanted</think> 4", prompt: "Write <think> and </think>.", answer: "<think>wanted</think> 4", hidden: "\x00"},
	} {
		for size := 1; size <= len(tt.text); size++ {
			var shown []string
			var live, thought strings.Builder
			a := &flow.Agent{Name: "a", Prompt: tt.prompt, Hooks: flow.Hooks{Partial: func(text string) { shown = append(shown, text) }}}
			var w world
			var end session.Session
			_, _, state, err := w.run1(t, &pieces{tt.text, size}, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := a.Forward(ctx, s)
				end = s
				return s, err
			}), func(rt *inprocess.Runtime, _ *journal.Task) {
				rt.Runtime.OnDelta = func(d engine.Delta) {
					if d.Void {
						live.Reset()
					}
					live.WriteString(d.Text)
					thought.WriteString(d.Reasoning)
				}
			})
			at := fmt.Sprintf("%q in pieces of %d", tt.text, size)
			if state != run.Succeeded {
				t.Fatalf("%s: the run is %s: %v", at, state, err)
			}
			if end.Text() != tt.answer || live.String() != tt.answer || shown[len(shown)-1] != tt.answer {
				t.Errorf("%s: the answer is %q, deltas give %q, the hook %q", at, end.Text(), live.String(), shown[len(shown)-1])
			}
			if stray := strings.HasPrefix(tt.text, tt.hidden); !stray && slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(s, tt.hidden) }) {
				t.Errorf("%s: the hook got %q", at, shown)
			} else if !stray && tt.hidden == "secret" && !strings.Contains(thought.String(), "secret") {
				t.Errorf("%s: the thoughts are %q", at, thought.String())
			}
		}
	}
}

// TestCallsNotMade: a call that its server rejected before executing it is repeated, even
// if it must not happen twice; a call that may have happened is not.
func TestCallsNotMade(t *testing.T) {
	for _, tt := range []struct {
		made   bool // perhaps
		effect tool.Effect
		calls  int
		state  run.State
	}{
		{false, tool.NonIdempotent, 2, run.Succeeded},
		{true, tool.NonIdempotent, 1, run.NeedsReview},
		{true, tool.Idempotent, 2, run.Succeeded},
	} {
		calls := 0
		s := &toolServer{
			specs: func(int) []tool.Spec { return act(`{"type":"object"}`, tt.effect) },
			call: func(int) (tool.Result, error) {
				if calls++; calls > 1 {
					return tool.Result{Body: "called"}, nil
				}
				err := fmt.Errorf("%w: its session is gone", session.ErrUnavailable)
				if !tt.made {
					err = fmt.Errorf("%w (%w)", err, tool.ErrNotMade)
				}
				return tool.Result{}, err
			},
		}
		m := &answers{all: []llm.Response{
			{Finish: llm.FinishTools, Calls: []session.ToolCall{{ID: "c", Name: "s__act", Args: "{}"}}}, saying("done"),
		}}
		var w world
		attempt := func() (run.State, error) {
			_, _, state, err := w.run1(t, m, &flow.Agent{Name: "a", MCP: []string{"s"}}, func(rt *inprocess.Runtime, _ *journal.Task) {
				rt.Runtime.Servers = func(string) (toolserver.Server, error) { return s, nil }
			})
			return state, err
		}
		state, err := attempt()
		if state == run.Running && errors.Is(err, session.ErrUnavailable) { // the next attempt finds the call's intent
			state, err = attempt()
		}
		if state != tt.state || calls != tt.calls || tt.state == run.NeedsReview && !errors.Is(err, run.ErrReview) {
			t.Errorf("%+v: %d calls, the run is %s: %v", tt, calls, state, err)
		}
	}
}
