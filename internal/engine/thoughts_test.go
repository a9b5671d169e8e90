package engine_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/llm/anthropic"
	"github.com/rathcluster/rath/llm/llmtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestThoughtsRefused: a server that rejects the thoughts of a session gets the request
// once more without them, as a further try of the step, and the agent's next requests
// omit them from the start.
func TestThoughtsRefused(t *testing.T) {
	answers, refused := 0, 0
	strict := &llmtest.StrictServer{Dialect: llmtest.AnthropicMessages, Refused: func([]byte, error) { refused++ }}
	key := "first"
	strict.Answer = func(_ []byte, mark string) string {
		if answers++; answers == 4 {
			return strict.Dialect.Document(mark, llmtest.Turn{Text: "done"})
		}
		return strict.Dialect.Document(mark, llmtest.Turn{Thought: "Hm.", Calls: []session.ToolCall{{ID: "toolu_1", Name: "f", Args: "{}"}}})
	}
	srv := httptest.NewServer(strict)
	defer srv.Close()
	used := tool.Func("f", "Does f.", func(context.Context, struct{}) (string, error) {
		key = "another" // under the same name, which voids the thoughts so far
		return "1", nil
	}, &tool.FuncOptions{Effect: tool.ReadOnly})
	rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: anthropic.New(&llm.ServerOptions{Key: func(string) (string, error) { return key, nil }})}}
	agent := &flow.Agent{Name: "a", Provider: llm.Provider{Model: "m", BaseURL: srv.URL, KeyRef: "K"}, Tools: []tool.Tool{used}}
	s, err := rt.Run(t.Context(), agent, session.New(session.UserText("go")))
	if err != nil {
		t.Fatal(err)
	}
	if last, _ := s.At(s.Len() - 1); last.Text() != "done" || answers != 4 || refused != 1 {
		t.Errorf("%q after %d answers and %d refusals; want 4 and 1", last.Text(), answers, refused)
	}
}
