package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

type ring struct{ Next *ring }

// loops calls body in a loop over a state.
func loops[S any](state S, body func(context.Context, session.Session, *S) (session.Session, bool, error)) flow.Func {
	return func(ctx context.Context, s session.Session) (session.Session, error) {
		v := state
		return flow.Loop(ctx, "l", s, &v, func(ctx context.Context, s session.Session) (session.Session, bool, error) {
			return body(ctx, s, &v)
		})
	}
}

// TestLoopRefuses: a loop names the reason and the remedy of each bad state, session and
// operation.
func TestLoopRefuses(t *testing.T) {
	circle := &ring{}
	circle.Next = circle
	none := func(_ context.Context, s session.Session, _ *int) (session.Session, bool, error) {
		return s, false, nil
	}
	for name, tc := range map[string]struct {
		code flow.Func
		want string
	}{
		"unexported": {loops(struct{ n int }{1}, func(_ context.Context, s session.Session, _ *struct{ n int }) (session.Session, bool, error) {
			return s, false, nil
		}), "field n would be lost: export it"},
		"later": {loops(0.0, func(_ context.Context, s session.Session, v *float64) (session.Session, bool, error) {
			*v = math.NaN()
			return s, true, nil
		}), `iteration 0 of loop "l": JSON cannot hold its state`},
		"circle": {loops(circle, func(_ context.Context, s session.Session, _ **ring) (session.Session, bool, error) {
			return s, false, nil
		}), "cycle"},
		"large": {loops("", func(_ context.Context, s session.Session, v *string) (session.Session, bool, error) {
			*v = strings.Repeat("x", flow.MaxLoopState)
			return s, true, nil
		}), "at most 65536: keep the rest in the session"},
		"nil": {func(ctx context.Context, s session.Session) (session.Session, error) {
			return flow.Loop[int](ctx, "l", s, nil, func(_ context.Context, s session.Session) (session.Session, bool, error) { return s, false, nil })
		}, "nil state"},
		"old": {loops(0, func(ctx context.Context, s session.Session, _ *int) (session.Session, bool, error) {
			_, err := flow.Fork(ctx, s.With(session.UserText("more")))
			return s, false, err
		}), "was extended to"},
		"other": {loops(0, func(ctx context.Context, s session.Session, _ *int) (session.Session, bool, error) {
			s, err := flow.Fork(ctx, s)
			return s, false, err
		}), "Adopt the other one"},
		"fork": {func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return loops(0, none)(ctx, s)
		}, "give it the session that Forward got"},
		"defer": {loops(0, func(ctx context.Context, s session.Session, _ *int) (session.Session, bool, error) {
			return s, false, flow.Defer(ctx, "undo", func(context.Context) error { return nil }, flow.DeferOptions{Effect: tool.Idempotent})
		}), "an iteration of a Loop"},
		"panic": {loops(0, func(context.Context, session.Session, *int) (session.Session, bool, error) { panic("oh") }), "panicked"},
		"outside": {func(ctx context.Context, s session.Session) (session.Session, error) {
			try, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return loops(0, func(ctx context.Context, s session.Session, _ *int) (session.Session, bool, error) {
				return s, false, flow.Reject(ctx, try, "no")
			})(ctx, s)
		}, "an iteration of a loop did not make it"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newResumable(t)
			w.run(run.ID("r"), tc.code, run.Failed)
			if r := must(w.values.Recorded(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-r"}, "r")); !strings.Contains(r.Record.Ended.Error, tc.want) {
				t.Errorf("the run failed: %s, want %q", r.Record.Ended.Error, tc.want)
			}
		})
	}
}

// TestLoopBudget: a body that never waits ends at the budget of steps.
func TestLoopBudget(t *testing.T) {
	w := newResumable(t)
	calls := 0
	w.run("r", loops(0, func(_ context.Context, s session.Session, n *int) (session.Session, bool, error) {
		calls++
		*n++
		return s, true, nil
	}), run.Failed, func(t *journal.Task) { t.Budget.Steps = 20 })
	if calls < 20 || calls > 50 {
		t.Errorf("the body was called %d times", calls)
	}
}

// TestLoopIsBounded: after many iterations, the record of the run has only the end of the
// newest, and the usage of all.
func TestLoopIsBounded(t *testing.T) {
	w := newResumable(t)
	const iterations = 50
	w.driver.Answer = func(_ context.Context, q run.Question) (any, error) {
		g, err := w.values.Recorded(t.Context(), q.Session, q.Run)
		if err == nil && g.Journal.Len() > 2 {
			err = fmt.Errorf("at step %s the record has %d steps", q.Step, g.Journal.Len())
		}
		return "hello", err
	}
	w.run("r", loops(0, func(ctx context.Context, s session.Session, n *int) (session.Session, bool, error) {
		s, err := flow.Listen(ctx, s, nil)
		if err != nil {
			return s, false, err
		}
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, false, err
		}
		if try, err = w.do(ctx, try, "work"); err != nil {
			return s, false, err
		}
		*n++
		s, err = flow.Adopt(ctx, s, try, "good")
		return s, *n < iterations, err
	}), run.Succeeded)
	recorded := int64(0)
	for _, k := range w.log.Keys() {
		for e, err := range w.log.Read(t.Context(), k, commitlog.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range e.Commit.Events {
				if ev.Kind == journal.KindStepCompleted {
					recorded++
				}
			}
		}
	}
	g := must(w.values.Recorded(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-r"}, "r"))
	if g.Record.Ended.Steps != recorded {
		t.Errorf("the run ended after %d steps, its logs have %d", g.Record.Ended.Steps, recorded)
	}
}

// TestLoopResumes: a failed run is resumed at the iteration that failed, or at an earlier
// one, with the state and the session of the one before.
func TestLoopResumes(t *testing.T) {
	w := newResumable(t)
	code := loops(0, func(ctx context.Context, s session.Session, n *int) (session.Session, bool, error) {
		s, err := w.do(ctx, s, fmt.Sprintf("turn%d", *n))
		*n++
		return s, *n < 4, err
	})
	w.fail["turn2"] = 1
	w.run("r", code, run.Failed)
	s, did := w.run("again", code, run.Succeeded, w.resumes("r", ""))
	if did != "turn2 turn3" || s.Len() != 4 {
		t.Errorf("it did %s, with %d rows", did, s.Len())
	}
	if s, did = w.run("earlier", code, run.Succeeded, w.resumes("r", "0.1")); did != "turn1 turn2 turn3" || s.Len() != 4 {
		t.Errorf("from 0.1 it did %s, with %d rows", did, s.Len())
	}
	if _, _, err := w.values.ResumptionAt(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-r"}, "r", "0.3"); !errors.Is(err, run.ErrMalformed) {
		t.Errorf("a resumption after the iteration that failed: %v", err)
	}
}

// TestLoopChanges: code with another state, or another loop, than the recorded one needs a
// review, also if its iterations are not replayed.
func TestLoopChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		change flow.Func
		want   string
	}{
		"state": {loops("", func(_ context.Context, s session.Session, _ *string) (session.Session, bool, error) {
			return s, false, nil
		}), "is recorded for another input"},
		"step": {func(ctx context.Context, s session.Session) (session.Session, error) { return s, flow.Sleep(ctx, 1) }, "is recorded as loop"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newResumable(t)
			code := loops(0, func(ctx context.Context, s session.Session, n *int) (session.Session, bool, error) {
				*n++
				if *n == 3 {
					return s, false, errors.New("stop")
				}
				return s, true, nil
			})
			w.run("r", code, run.Failed)
			r, err := engine.Replay(t.Context(), &w.rt, flow.Registration{Name: "w", New: func() flow.Workflow { return tc.change }}, session.Key{Tenant: session.DefaultTenant, ID: "s-r"}, "r")
			if err != nil || r.Matches() || !strings.Contains(r.Differs, tc.want) {
				t.Errorf("a replay: %v, %+v, want %q", err, r, tc.want)
			}
		})
	}
}
