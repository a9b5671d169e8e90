package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestToolChoice: an agent's choice applies to its first call, so that it can end, and
// llm.ToolsNone to all; an unknown tool is rejected before a request.
func TestToolChoice(t *testing.T) {
	look := tool.Func("look", "Looks.", func(context.Context, struct{}) (string, error) { return "two", nil }, &tool.FuncOptions{Effect: tool.ReadOnly})
	for choice, want := range map[string][]string{
		"": {"", ""}, llm.ToolsRequired: {"required", ""}, "look": {"look", ""}, llm.ToolsNone: {"none", "none"}, "lok": nil,
	} {
		t.Run(choice, func(t *testing.T) {
			var w world
			var asked []string
			m := client(func(_ context.Context, r *llm.Request) (*llm.Response, error) {
				if err := r.Validate(); err != nil {
					return nil, err
				}
				asked = append(asked, r.ToolChoice)
				if len(asked) == 1 {
					return &llm.Response{Calls: []session.ToolCall{{ID: "a", Name: "look", Args: "{}"}}, Finish: llm.FinishTools, Usage: session.Usage{Input: 10}}, nil
				}
				return &llm.Response{Text: "two", Finish: llm.FinishStop, Usage: session.Usage{Input: 10}}, nil
			})
			agent := &flow.Agent{Name: "a", Tools: []tool.Tool{look}, ToolChoice: choice}
			_, err := start(t, w.runtime(m), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				return agent.Forward(ctx, s.With(session.UserText("hello")))
			})).Forward(t.Context())
			if !slices.Equal(asked, want) || (err == nil) != (want != nil) || err != nil && !errors.Is(err, llm.CodeInvalidRequest) {
				t.Errorf("asked with %q, want %q: %v", asked, want, err)
			}
		})
	}
}
