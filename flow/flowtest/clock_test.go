package flowtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// nap sleeps for a week and adds the times before and after.
func nap(ctx context.Context, s session.Session) (session.Session, error) {
	before := flow.Now(ctx)
	if err := flow.Sleep(ctx, 7*24*time.Hour); err != nil {
		return s, err
	}
	s = s.With(session.UserText(fmt.Sprintf("asleep at %v", flow.Now(ctx).Sub(before))))
	// The time is an argument of a step, whose digest is recorded.
	_, err := flow.Do(ctx, "noon "+flow.Now(ctx).Format(time.RFC3339Nano), func(ctx context.Context) (time.Time, error) {
		return flow.Now(ctx), nil
	}, tool.NonIdempotent)
	return s, err
}

// TestSleep: a week passes immediately, and its end is exactly a week later.
func TestSleep(t *testing.T) {
	began := time.Now()
	s := flowtest.Run(t, flow.Func(nap), session.New(), "testdata/word.txtar", nil)
	if row, _ := s.Last(session.User); row.Text() != "asleep at 168h0m0s" {
		t.Errorf("it says %q", row.Text())
	}
	if d := time.Since(began); d > time.Minute {
		t.Errorf("a week took %v", d)
	}
}

// TestSleepCrashEverywhere: steps get the same times with and without a crash, also in
// branches that sleep for different times.
func TestSleepCrashEverywhere(t *testing.T) {
	t.Parallel()
	newWorkflow := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := nap(ctx, s)
			if err != nil {
				return s, err
			}
			var branches []flow.Branch
			for _, d := range []time.Duration{time.Hour, 2 * time.Hour, 0} {
				branches = append(branches, flow.Branch{Name: fmt.Sprintf("h%d", d/time.Hour), Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					if err := flow.Sleep(ctx, d); err != nil {
						return s, err
					}
					s = s.With(session.UserText(flow.Now(ctx).Format(time.RFC3339Nano)))
					return (&flow.Agent{Name: "reader"}).Forward(ctx, s)
				})})
			}
			j, err := flow.FanOut(ctx, s, branches, nil)
			if err != nil {
				return s, err
			}
			if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
				return s, err
			}
			return s.With(session.UserText(flow.Now(ctx).Format(time.RFC3339Nano))), nil
		})
	}
	flowtest.CrashEverywhere(t, newWorkflow, session.New(session.UserText("go")), "testdata/word.txtar", &flowtest.Options{Resolve: "again"})
}

// TestTimeouts: the timeouts of a fan-out and of a run pass likewise.
func TestTimeouts(t *testing.T) {
	slow := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return s, flow.Sleep(ctx, 48*time.Hour)
	})
	quick := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return s.With(session.UserText("quick")), nil
	})
	flowtest.Run(t, flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		began := flow.Now(ctx)
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "slow", Workflow: slow}, {Name: "quick", Workflow: quick}}, &flow.FanOutOptions{Timeout: 24 * time.Hour})
		if err != nil {
			return s, err
		}
		if took := flow.Now(ctx).Sub(began); len(j.Succeeded()) != 1 || took != 24*time.Hour {
			t.Errorf("%d branches succeeded after %v", len(j.Succeeded()), took)
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}), session.New(session.UserText("go")), "testdata/word.txtar", nil)
}
