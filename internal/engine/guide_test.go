package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/guide"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestGuideOfBranches: if several branches have the workspace's instructions for agents,
// a model gets each distinct text once, at its first place. So does a session that
// continues after a summary.
func TestGuideOfBranches(t *testing.T) {
	told := func(says string) session.Chunk {
		g := guide.Guide{Agents: says}
		return session.UserText(g.Text()).Of(session.Origin{Agent: "workspace"})
	}
	branch := func(name, says string) flow.Branch {
		return flow.Branch{Name: name, Workflow: flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			return s.With(told(says)).With(session.AssistantText(strings.Repeat(name, 400))), nil
		})}
	}
	var w world
	var got [][]string
	m := model(func(r *llm.Request) *llm.Response {
		var seen []string
		for _, m := range r.Messages {
			text := m.Text[:min(len(m.Text), 2)]
			if is, _ := guide.IsText(m.Text); is {
				text = "guide " + m.Text[strings.LastIndex(m.Text, "[")+2:][:3]
			}
			seen = append(seen, text)
		}
		got = append(got, seen)
		return &llm.Response{Text: "done", Finish: llm.FinishStop}
	})
	_, ex, state, err := w.run1(t, m, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{branch("a", "zip"), branch("b", "zip"), branch("c", "tar")}, nil)
		if err != nil {
			return s, err
		}
		if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
			return s, err
		}
		if s, err = (&flow.Agent{Name: "one"}).Forward(ctx, s.With(session.UserText("go"))); err != nil {
			return s, err
		}
		return (&flow.Compressor{Name: "short", Keep: 10}).Forward(ctx, s)
	}), nil)
	if err != nil || state != run.Succeeded {
		t.Fatalf("the run is %s: %v", state, err)
	}
	if want := []string{"go", "guide zip", "aa", "bb", "guide tar", "cc", "go"}; len(got) == 0 || !slices.Equal(got[0], want) {
		t.Errorf("the model was shown %q, want %q", got, want)
	}
	var kept []string
	for _, text := range texts(ex.Result()) {
		if is, _ := guide.IsText(text); is {
			kept = append(kept, text)
		}
	}
	if len(kept) != 2 || kept[0] == kept[1] {
		t.Errorf("after the summary the session has %s", fmt.Sprint(kept))
	}
}
