package flow_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestDeadlineInThePast: a run whose deadline has passed when it is claimed does
// nothing, however quick its workflow is.
func TestDeadlineInThePast(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var w world
			called := false
			ex := start(t, w.runtime(nil), func(_ context.Context, s session.Session) (session.Session, error) {
				called = true
				return s.With(session.UserText("done")), nil
			}, func(task *run.Task) { task.Deadline = time.Now() })
			state, err := ex.Forward(t.Context())
			if state != run.TimedOut || !errors.Is(err, run.ErrDeadline) || called {
				t.Errorf("state %s, called %v: %v", state, called, err)
			}
			if e := ended(t, &w); e.Code != run.CodeDeadline {
				t.Errorf("the run ended with %q: %s", e.Code, e.Error)
			}
		})
	}
}

// TestDeadlineKeepsUsage: a run that is taken up after its deadline says what it
// used before, although its code comes to nothing of it.
func TestDeadlineKeepsUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var used atomic.Int64
		f := func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := spends(ctx, s, 3)
			if err != nil {
				return s, err
			}
			branch, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			if branch, err = spends(ctx, branch, 2); err != nil {
				return s, err
			}
			_, err = flow.Do(ctx, "hang", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, flow.Effect(2))
			return branch, err
		}
		within := func(d time.Duration) func(*run.Task) {
			return func(task *run.Task) { task.Deadline = time.Now().Add(d) }
		}
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(run.ErrShutdown) })
		if state, err := start(t, w.runtime(penny(&used)), f, within(time.Minute)).Forward(ctx); state != run.Queued {
			t.Fatalf("state %s: %v", state, err)
		}
		ctx, stop = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(run.ErrShutdown) })
		if state, err := start(t, w.runtime(penny(&used)), f, resume).Forward(ctx); state != run.Queued {
			t.Fatalf("state %s: %v", state, err)
		}
		time.Sleep(time.Hour)
		state, err := start(t, w.runtime(penny(&used)), f, resume).Forward(t.Context())
		if state != run.TimedOut {
			t.Fatalf("state %s: %v", state, err)
		}
		// What the branch's log says is read when the code comes to it.
		if e := ended(t, &w); e.Usage != (session.Usage{Calls: 3, Input: 3}) || e.Lost != (session.Usage{}) {
			t.Errorf("the run used %+v and lost %+v of %d tokens", e.Usage, e.Lost, used.Load())
		}
	})
}

// TestWhyCancelled: a branch that did not end says whether it was too slow or
// not needed.
func TestWhyCancelled(t *testing.T) {
	slow := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "slow", func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, flow.Effect(2))
		return s, err
	})
	for _, tt := range []struct {
		name   string
		o      flow.FanOutOptions
		reason string
	}{
		{"deadline", flow.FanOutOptions{Deadline: time.Minute}, "the deadline of the fan-out passed"},
		{"first", flow.FanOutOptions{Deadline: time.Minute, Join: flow.Join{First: true}}, "the join was decided without it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := (&flow.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "slow", Workflow: slow}, {Name: "quick", Workflow: say("quick")}}, &tt.o)
					if err != nil {
						return s, err
					}
					if o := j.Outcomes[0]; o.State != run.Cancelled || o.Err == nil || o.Err.Error() != tt.reason {
						t.Errorf("the slow branch is %s: %v, want %q", o.State, o.Err, tt.reason)
					}
					return flow.Merge(ctx, j, flow.Pick(-1))
				}), session.New(session.UserText("go")))
				if err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
