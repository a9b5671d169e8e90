package inprocess_test

import (
	"context"
	"slices"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// lister is a model that lists the files twice before it answers.
type lister struct{ calls int }

func (l *lister) Client(context.Context, llm.Provider) (llm.Client, error) { return l, nil }

func (l *lister) Complete(context.Context, *llm.Request, func(llm.Delta)) (*llm.Response, error) {
	if l.calls++; l.calls > 2 {
		return &llm.Response{Text: "done", Finish: llm.FinishStop}, nil
	}
	return &llm.Response{Calls: []session.ToolCall{{ID: string(rune('a' + l.calls)), Name: tool.ListWorkspaceFiles, Args: "{}"}}, Finish: llm.FinishTools}, nil
}

// TestWithoutSandbox: the author of an agent with tools for files is warned, once per
// run, that the session has no sandbox.
func TestWithoutSandbox(t *testing.T) {
	var warned []string
	r := &inprocess.Runner{Models: &lister{}, OnWarning: func(_ run.ID, text string) { warned = append(warned, text) }}
	must.Get(r.Run(t.Context(), &flow.Agent{Name: "worker", Tools: tool.Builtins()}, session.New(session.UserText("go"))))(t)
	want := `list_workspace_files of agent "worker" cannot work: flow: the session has no sandbox: send it to one with s.To("local", dir), or give the task a workspace`
	if !slices.Equal(warned, []string{want}) {
		t.Errorf("warned %q, want %q", warned, want)
	}
}
