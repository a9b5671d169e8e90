package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// times runs a workflow that notes flow.Now, stops it before its end, and replays it. It
// returns the noted times of both, since they began.
func times(t *testing.T, m llm.Models, f func(ctx context.Context, s session.Session, note func()) (session.Session, error)) (live, replayed []time.Duration) {
	t.Helper()
	var w world
	began := time.Now()
	work := func(noted *[]time.Duration, after func()) flow.Func {
		return func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := f(ctx, s, func() { *noted = append(*noted, flow.Now(ctx).Sub(began)) })
			if err != nil {
				return s, err
			}
			after()
			_, err = flow.Do(ctx, "last", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
			return s, err
		}
	}
	ctx, stop := context.WithCancelCause(t.Context())
	ex := start(t, w.runtime(m), work(&live, func() { stop(run.ErrShutdown) }))
	forward(t, ctx, ex, run.Queued)
	time.Sleep(time.Hour)
	forward(t, t.Context(), start(t, w.runtime(m), work(&replayed, func() {}), resume), run.Succeeded)
	return live, replayed
}

// TestNowAfterParallelTools: calls of one round end in another order than that of the
// calls. The time is that of the last one recorded.
func TestNowAfterParallelTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleep := tool.Func("sleep", "", func(_ context.Context, in struct{ Seconds int }) (int, error) {
			time.Sleep(time.Duration(in.Seconds) * time.Second)
			return in.Seconds, nil
		}, &tool.FuncOptions{Effect: tool.ReadOnly})
		m := model(func(*llm.Request) *llm.Response {
			return &llm.Response{Finish: llm.FinishTools, Calls: []session.ToolCall{
				{ID: "a", Name: "sleep", Args: `{"Seconds":20}`}, {ID: "b", Name: "sleep", Args: `{"Seconds":1}`},
			}}
		})
		agent := &flow.Agent{Name: "a", Tools: []tool.Tool{sleep}, MaxRounds: 1}
		live, replayed := times(t, m, func(ctx context.Context, s session.Session, note func()) (session.Session, error) {
			s, err := agent.Forward(ctx, s.With(session.UserText("go")))
			if !errors.Is(err, flow.ErrMaxRounds) {
				return s, fmt.Errorf("the agent ended with %w", err)
			}
			note()
			return s, nil
		})
		if want := []time.Duration{20 * time.Second}; !slices.Equal(live, want) || !slices.Equal(replayed, want) {
			t.Errorf("it was %v, and %v when the code ran again, want %v", live, replayed, want)
		}
	})
}

// slowEnds delays commits without a step's record by a second.
type slowEnds struct{ journal.Store }

func (s slowEnds) Commit(ctx context.Context, b journal.Batch) (journal.Ack, error) {
	if !slices.ContainsFunc(b.Events, func(e session.Event) bool { return e.Kind == journal.KindStepCompleted }) {
		time.Sleep(time.Second)
	}
	return s.Store.Commit(ctx, b)
}

// TestNowIsOfStepsOnly: other commits of the run do not move the time, because replay
// does not read them.
func TestNowIsOfStepsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		began := time.Now()
		var noted []time.Duration
		rt := w.runtime(nil)
		rt.Runtime.Store = slowEnds{rt.Runtime.Store}
		state, err := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			s = s.With(session.UserText("go"))
			try, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if s, err = flow.Adopt(ctx, s, try.With(session.UserText("more")), "good"); err != nil { // closes the branch
				return s, err
			}
			noted = append(noted, flow.Now(ctx).Sub(began))
			return s, nil
		}).Forward(t.Context())
		if state != run.Succeeded || !slices.Equal(noted, []time.Duration{0}) {
			t.Errorf("state %s, error %v, it was %v", state, err, noted)
		}
	})
}

// TestNowInBranches: on the node of a branch, which begins later, the code around the
// branch gets the same times as where it opened the branch; and the branch continues from
// there.
func TestNowInBranches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		seen := map[string][]time.Duration{}
		add := func(ctx context.Context, where string) { seen[where] = append(seen[where], flow.Now(ctx).Sub(began)) }
		sleep := func(ctx context.Context, name string) error {
			_, err := flow.Do(ctx, name, func(context.Context) (int, error) { time.Sleep(time.Minute); return 1, nil }, tool.NonIdempotent)
			return err
		}
		branch := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			add(ctx, "branch")
			if err := sleep(ctx, "in"); err != nil {
				return s, err
			}
			add(ctx, "branch")
			return s.With(session.UserText("b")), nil
		})
		must((&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			add(ctx, "start")
			if err := sleep(ctx, "out"); err != nil {
				return s, err
			}
			add(ctx, "before")
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "b", Workflow: branch}}, nil)
			if err != nil {
				return s, err
			}
			add(ctx, "after")
			return flow.Merge(ctx, j, flow.Pick(0))
		}), session.New(session.UserText("go"))))
		for where, want := range map[string][]time.Duration{
			"start": {0}, "before": {time.Minute}, "branch": {time.Minute, 2 * time.Minute}, "after": {2 * time.Minute},
		} {
			for i, got := range seen[where] {
				if got != want[i%len(want)] {
					t.Errorf("%s: it was %v, want %v each time", where, seen[where], want)
					break
				}
			}
		}
		if len(seen["start"]) < 2 {
			t.Errorf("the code around the branch ran %d times", len(seen["start"]))
		}
	})
}
