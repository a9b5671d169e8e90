package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// model answers depending on the request.
type model func(r *llm.Request) *llm.Response

func (m model) Complete(ctx context.Context, r *llm.Request, sink func(llm.Delta)) (*llm.Response, error) {
	return m(r), nil
}

func (m model) Client(context.Context, llm.Provider) (llm.Client, error) { return m, nil }

type wordsIn struct {
	Text string `json:"text"`
}

var words = tool.Func("words", "Count words.", func(_ context.Context, in wordsIn) (int, error) {
	return len(strings.Fields(in.Text)), nil
}, &tool.FuncOptions{Effect: tool.ReadOnly})

func TestAgent(t *testing.T) {
	m := model(func(r *llm.Request) *llm.Response {
		last := r.Messages[len(r.Messages)-1]
		if last.Role == llm.User {
			return &llm.Response{Finish: llm.FinishTools, Usage: session.Usage{Input: 10, Output: 5}, Calls: []session.ToolCall{
				{ID: "a", Name: "words", Args: `{"text":"one two"}`}, {ID: "b", Name: "words", Args: `{"text":"three"}`}, {ID: "c", Name: "nope", Args: `{}`},
			}}
		}
		return &llm.Response{Text: "done " + last.Text, Finish: llm.FinishStop, Usage: session.Usage{Input: 20, Output: 1}}
	})
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: m}}
	agent := &flow.Agent{Name: "counter", Prompt: "count", Tools: []tool.Tool{words}}
	s := must(rt.Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if try, err = agent.Forward(ctx, try); err != nil {
			return s, err
		}
		lost, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if err := flow.Reject(ctx, lost, "not needed"); err != nil {
			return s, err
		}
		return flow.Adopt(ctx, s, try, "it counts")
	}), session.New(session.UserText("count this"))))
	var kinds []string
	for _, c := range s.Chunks() {
		kinds = append(kinds, string(c.Kind())+" "+c.Text())
	}
	t.Log(strings.Join(kinds, "\n"))
	if s.Len() != 6 || s.Usage().Tokens() != 36 {
		t.Fatalf("%d chunks, usage %+v", s.Len(), s.Usage())
	}
}

// must returns v; it panics on an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// forward runs an execution, which must leave its run in a state, and returns the error.
func forward(t *testing.T, ctx context.Context, ex *engine.Execution, want run.State) error {
	t.Helper()
	state, err := ex.Forward(ctx)
	if state != want {
		t.Fatalf("the run is %s, want %s: %v", state, want, err)
	}
	return err
}
