package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestSelect: the first integer of an answer names the choice, and any other answer names
// none; without candidates no model is asked, and an empty workflow leaves the session
// unchanged.
func TestSelect(t *testing.T) {
	say := func(text string) flow.Workflow {
		return flow.Described(text, "says "+text, flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			return s.With(session.UserText(text)), nil
		}))
	}
	ws := []flow.Workflow{say("zero"), say("one"), say("two")}
	for _, tt := range []struct {
		answer string
		ws     []flow.Workflow
		want   []string
		asked  int
	}{
		{"1.", ws, []string{"go", "one"}, 1},
		{"The best is 2, not 1", ws, []string{"go", "two"}, 1},
		{"-1", ws, []string{"go"}, 1},
		{"9", ws, []string{"go"}, 1},
		{"I cannot say", ws, []string{"go"}, 1},
		{"0", nil, []string{"go"}, 0},
	} {
		t.Run(fmt.Sprint(tt.answer, len(tt.ws)), func(t *testing.T) {
			var w world
			asked := 0
			m := model(func(*llm.Request) *llm.Response {
				asked++
				return &llm.Response{Text: tt.answer, Finish: llm.FinishStop}
			})
			_, ex, state, err := w.run1(t, m, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				next, err := (&flow.Selector{Name: "router"}).Select(ctx, s, tt.ws...)
				if err != nil {
					return s, err
				}
				return next.Forward(ctx, s)
			}), nil)
			if err != nil || state != run.Succeeded || asked != tt.asked || !slices.Equal(texts(ex.Result()), tt.want) {
				t.Errorf("the run is %s after %d calls and says %q: %v", state, asked, texts(ex.Result()), err)
			}
		})
	}
}

// TestDetach: a detached copy has the rows of its base, is in a tree of its own, and
// stays open when the run ends; additions to it do not change the base.
func TestDetach(t *testing.T) {
	var w world
	var copied session.Session
	_, ex, state, err := w.run1(t, echo, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var err error
		if copied, err = flow.Detach(ctx, s); err != nil {
			return s, err
		}
		if copied.Root() == s.Root() || copied.Opening().Kind != session.OpenDetach {
			return s, errors.New("it is in the tree of its base")
		}
		if copied, err = (&flow.Agent{Name: "a"}).Forward(ctx, copied.With(session.UserText("aside"))); err != nil {
			return s, err
		}
		return s.With(session.UserText("done")), nil
	}), nil)
	if err != nil || state != run.Succeeded || !slices.Equal(texts(ex.Result()), []string{"go", "done"}) || copied.Len() != 3 {
		t.Fatalf("the run is %s, the copy says %q: %v", state, texts(copied), err)
	}
	k, events := w.branch(t)
	if k != copied.Key() || slices.ContainsFunc(events, func(e session.Event) bool { return e.Kind == session.KindClosed }) {
		t.Errorf("the copy is %s, and its log was closed: %v", k, events)
	}
}
