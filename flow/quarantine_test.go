package flow_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestQuarantine: the step under way ends, none follows, nobody claims the run
// before it is released; then it goes on.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		var ran []string
		work := func(ctx context.Context, s session.Session) (session.Session, error) {
			for _, name := range []string{"a", "b", "c"} {
				_, err := flow.Do(ctx, name, func(context.Context) (int, error) {
					ran = append(ran, name)
					time.Sleep(time.Minute)
					return 1, nil
				}, flow.Effect(2))
				if err != nil {
					return s, err
				}
			}
			return s, nil
		}
		ex := start(t, rt, work)
		set := func(released bool) error {
			return rt.Store.Apply(t.Context(), run.Signal{To: home, Quarantine: &run.Quarantined{Reason: "odd", Released: released}})
		}
		go func() {
			time.Sleep(90 * time.Second)
			if err := set(false); err != nil {
				t.Error(err)
			}
		}()
		if state, err := ex.Forward(t.Context()); state != run.Queued {
			t.Fatalf("state %s: %v", state, err)
		}
		if err := set(false); !errors.Is(err, run.ErrState) {
			t.Errorf("quarantined twice: %v", err)
		}
		if ex := start(t, rt, work, resume); ex.State() != run.Queued {
			t.Errorf("a quarantined run is claimed: %s", ex.State())
		}
		if err := set(true); err != nil {
			t.Fatal(err)
		}
		if state, err := start(t, rt, work, resume).Forward(t.Context()); state != run.Succeeded {
			t.Fatalf("state %s: %v", state, err)
		}
		if got := strings.Join(ran, ""); got != "abc" {
			t.Errorf("the steps ran as %q", got)
		}
	})
}

// TestMergeOfQuarantined: a branch that was set apart goes into nothing.
func TestMergeOfQuarantined(t *testing.T) {
	rt := &flow.Runtime{}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: say("from a")}}, nil)
		if err != nil {
			return s, err
		}
		if err := rt.Signal(ctx, run.Signal{To: j.Outcomes[0].Session.Key(), Quarantine: &run.Quarantined{Reason: "odd"}}); err != nil {
			t.Error(err)
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	_, err := rt.Run(t.Context(), w, session.New(session.UserText("go")))
	if !errors.Is(err, run.ErrReview) || !strings.Contains(err.Error(), "quarantined: odd") {
		t.Errorf("the run stopped with %v", err)
	}
}

// TestRebudget: a run that is short of tokens goes on with more.
func TestRebudget(t *testing.T) { synctest.Test(t, testRebudget) }

func testRebudget(t *testing.T) {
	var w world
	var rt *flow.Runtime
	calls := 0
	m := client(func(context.Context, *llm.Request) (*llm.Response, error) {
		calls++
		if calls == 1 {
			b := run.Rebudgeted{Budget: run.Budget{Tokens: 1 << 20}}
			if err := rt.Store.Apply(t.Context(), run.Signal{To: home, Run: "r", Rebudget: &b}); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // the execution hears of it
		}
		return &llm.Response{Text: "x", Finish: llm.FinishStop, Usage: llm.Usage{Input: 900, Output: 200}}, nil
	})
	rt = w.runtime(m)
	agent := &flow.Agent{Name: "a"}
	ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
		for range 3 {
			var err error
			if s, err = agent.Forward(ctx, s.With(session.UserText("go"))); err != nil {
				return s, err
			}
		}
		return s, nil
	}, func(task *run.Task) { task.Budget.Tokens = 1000 })
	if state, err := ex.Forward(t.Context()); state != run.Succeeded {
		t.Fatalf("state %s after %d calls: %v", state, calls, err)
	}
}
