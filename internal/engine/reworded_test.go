package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestAnswerIsForItsQuestion: the code changes while a question is open. Its answer
// decides no other question and is not lost: the run waits for an operator, and resumes
// with the answer once the code asks the same question again.
func TestAnswerIsForItsQuestion(t *testing.T) {
	did := ""
	asks := func(name string) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			a, err := flow.Approve(ctx, name, nil)
			if err != nil || !a.Approved {
				return s, errors.Join(err, ctx.Err())
			}
			_, err = flow.Do(ctx, name, func(context.Context) (int, error) { did += name; return 0, nil }, tool.NonIdempotent)
			return s, err
		}
	}
	does := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		if _, err := flow.Do(ctx, "more", func(context.Context) (int, error) { did += "more"; return 0, nil }, tool.NonIdempotent); err != nil {
			return s, err
		}
		return asks("publish")(ctx, s)
	})
	for name, other := range map[string]flow.Func{"another question": asks("delete"), "another step": does} {
		t.Run(name, func(t *testing.T) {
			var w world
			did = ""
			rt := w.runtime(nil)
			forward(t, t.Context(), start(t, rt, asks("publish")), run.Waiting)
			replay := func() *engine.Replayed {
				return must(engine.Replay(t.Context(), &w.runtime(nil).Runtime, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return other }}, home, "r"))
			}
			if got := replay(); got.Matches() {
				t.Errorf("a replay says that code with %s matches while the question is open", name)
			}
			check(t, talk(t, rt, journal.SignalReceived{Kind: journal.Approve, Path: "0", By: "ana"}))
			rt = w.runtime(nil)
			err := forward(t, t.Context(), start(t, rt, other, resume), run.NeedsReview)
			if !errors.Is(err, run.ErrMismatch) || !strings.Contains(err.Error(), `step 0 asked "publish"`) || did != "" {
				t.Errorf("the run did %q and says %v", did, err)
			}
			check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, By: "ana", Reason: "the code is back"}}))
			forward(t, t.Context(), start(t, w.runtime(nil), asks("publish"), resume), run.Succeeded)
			if did != "publish" {
				t.Errorf("with the code of before it did %q", did)
			}
		})
	}
}
