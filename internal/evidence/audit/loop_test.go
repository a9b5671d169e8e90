package audit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// reminder sleeps three times, in a loop, and makes a fork and a tag each time.
func reminder(ctx context.Context, s session.Session) (session.Session, error) {
	var c struct{ Naps int }
	s, err := flow.Loop(ctx, "naps", s, &c, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
		if err := flow.Sleep(ctx, time.Minute); err != nil {
			return s, false, err
		}
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, false, err
		}
		if c.Naps, err = flow.Do(ctx, "count", func(context.Context) (int, error) { return c.Naps + 1, nil }, tool.Idempotent); err != nil {
			return s, false, err
		}
		if err := flow.SetTag(ctx, "naps", "some"); err != nil {
			return s, false, err
		}
		s, err = flow.Adopt(ctx, s, try.With(session.AssistantText("slept")), "it slept")
		return s, c.Naps < 3, err
	})
	return s.With(session.AssistantText("done")), err
}

// TestRecordedLoop: the auditor accepts the loop of a run whose process dies at each append,
// and finds iterations that do not follow from the ones before.
func TestRecordedLoop(t *testing.T) {
	play := func(t *testing.T, at int, stored bool) (appends int) {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{}
			state, n := f.life(t, flow.Func(reminder), at, stored)
			appends = n
			for range 20 {
				if state.Terminal() {
					break
				}
				state, _ = f.life(t, flow.Func(reminder), 0, false)
			}
			if r := f.audited(t); !r.OK() || state != run.Succeeded || r.Open > 0 {
				t.Errorf("death at append %d (stored: %v): the run is %s, %d of %d open, %v\n%s", at, stored, state, r.Open, r.Runs, f.last, violations(r))
			}
			if at > 0 {
				return
			}
			for _, forge := range []struct{ old, with, found string }{
				{`\"from\":\"e0f631421a9be74eb21d1c2f7ae904e6\"`, `\"from\":\"6932e5ff57d9fe5a37bb8f17f1d7bee9\"`, "iteration 0.1 to begin with the state"},
				{`"name":"naps","path":"0.1"`, `"name":"naps","path":"0.2"`, "iteration 1 of the loop at step 0"},
				{`"path":"0.2.1"`, `"path":"0.1.1"`, "no step of iteration 1 of the loop at step 0, which has ended"},
				{`\"state\":\"{\\\"Naps\\\":2}\"`, `\"state\":\"{\\\"Naps\\\":2\"`, "a state of a loop, JSON"},
				{`\"tags\":{\"naps\":\"some\"}`, `\"tags\":{\"naps\":\"none\"}`, "and the tags of the run"},
			} {
				f.finds(t, forge.old, forge.with, forge.found)
			}
		})
		return appends
	}
	n := play(t, 0, false)
	for at := 1; at <= n; at++ {
		for _, stored := range []bool{false, true} {
			play(t, at, stored)
		}
	}
}
