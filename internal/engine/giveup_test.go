package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// asked asks for the end of run "r".
func asked(t *testing.T, rt *inprocess.Runtime, force bool) {
	t.Helper()
	check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough", Force: force}}))
}

// commitsOf returns the kinds of the events in the log of the home, a string for each commit.
func commitsOf(t *testing.T, w *world) (all []string) {
	t.Helper()
	for e, err := range w.Read(t.Context(), home, commitlog.Position{}) {
		check(t, err)
		var kinds []string
		for _, ev := range e.Commit.Events {
			kinds = append(kinds, ev.Kind)
		}
		all = append(all, strings.Join(kinds, " "))
	}
	return all
}

// TestGiveUp cancels a run whose code ignores its context. The run ends after a stated time,
// or at once if that is forced, and the code is counted until it returns. With an open call
// that must not happen twice the run needs a review. Nothing that the code does later is in
// the log, but the outcome of its call as evidence.
func TestGiveUp(t *testing.T) {
	type code = func(ctx context.Context, s session.Session, block func()) error
	do := func(e tool.Effect) code {
		return func(ctx context.Context, _ session.Session, block func()) error {
			_, err := flow.Do(ctx, "pay", func(context.Context) (string, error) { block(); return "paid", nil }, e)
			return err
		}
	}
	call := func(e tool.Effect) code {
		return func(ctx context.Context, s session.Session, block func()) error {
			pay := tool.Func("pay", "pays", func(context.Context, struct{}) (string, error) { block(); return "paid", nil }, &tool.FuncOptions{Effect: e})
			_, _, err := flow.CallTool(ctx, s, pay, struct{}{})
			return err
		}
	}
	own := func(_ context.Context, _ session.Session, block func()) error { block(); return nil }
	forked := func(ctx context.Context, s session.Session, block func()) error {
		f, err := flow.Fork(ctx, s.With(session.UserText("hello")))
		if err != nil {
			return err
		}
		return call(tool.NonIdempotent)(ctx, f, block)
	}
	paidAndHangs := func(ctx context.Context, _ session.Session, block func()) error {
		_, _ = flow.Do(ctx, "pay", func(ctx context.Context) (string, error) { <-ctx.Done(); return "paid", nil }, tool.NonIdempotent)
		block()
		return nil
	}
	const never, wait, forced = time.Duration(0), engine.GiveUpAfter, engine.ForcedAfter
	for _, tc := range []struct {
		name    string
		code    code
		force   time.Duration // after the cancel; never, or 0 with the cancel itself
		budget  time.Duration
		returns time.Duration
		want    run.State
		after   time.Duration
		late    int
	}{
		{"own code", own, never, 0, time.Hour, run.Cancelled, wait, 0},
		{"own code, in time", own, never, 0, wait - time.Second, run.Cancelled, wait - time.Second, 0},
		{"forced", own, 1, 0, time.Hour, run.Cancelled, forced, 0},
		{"forced, in time", own, 1, 0, time.Millisecond, run.Cancelled, time.Millisecond, 0},
		{"forced later", own, 5 * time.Second, 0, time.Hour, run.Cancelled, 5*time.Second + forced, 0},
		{"do, non-idempotent", do(tool.NonIdempotent), never, 0, time.Hour, run.NeedsReview, wait, 1},
		{"do, non-idempotent, in time", do(tool.NonIdempotent), never, 0, time.Second, run.Cancelled, time.Second, 0},
		{"do, non-idempotent, in time, then own code", paidAndHangs, never, 0, time.Hour, run.Cancelled, wait, 0},
		{"do, idempotent", do(tool.Idempotent), never, 0, time.Hour, run.Cancelled, wait, 1},
		{"tool, non-idempotent, forced", call(tool.NonIdempotent), 1, 0, time.Hour, run.NeedsReview, forced, 1},
		{"tool, read-only", call(tool.ReadOnly), never, 0, time.Hour, run.Cancelled, wait, 1},
		{"tool of a fork", forked, never, 0, time.Hour, run.NeedsReview, wait, 1},
		{"deadline", own, never, time.Minute, 2 * time.Hour, run.TimedOut, wait, 0},
		{"deadline of a call", do(tool.NonIdempotent), never, time.Minute, 2 * time.Hour, run.NeedsReview, wait, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				rt := w.runtime(nil)
				var leaked []int
				rt.Runtime.OnLeak = func(n int) { leaked = append(leaked, n) }
				var after error
				var began time.Time
				ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
					err := tc.code(ctx, s, func() {
						<-ctx.Done()
						time.Sleep(tc.returns)
					})
					_, after = flow.Do(ctx, "more", func(context.Context) (int, error) { t.Error("another step ran"); return 0, nil }, tool.ReadOnly)
					return s, err
				}, func(task *journal.Task) { task.Budget.Time = tc.budget })
				began = time.Now().Add(tc.budget)
				if tc.budget == 0 {
					began = began.Add(time.Minute)
					time.AfterFunc(time.Minute, func() { asked(t, rt, tc.force == 1) })
				}
				if tc.force > 1 {
					time.AfterFunc(time.Minute+tc.force, func() { asked(t, rt, true) })
				}
				_ = forward(t, t.Context(), ex, tc.want)
				if took := time.Since(began); took != tc.after {
					t.Errorf("it ended %v after the cancel, want %v", took, tc.after)
				}
				givenUp := tc.after != tc.returns
				if n := rt.Runtime.Leaked(); n != 0 != givenUp {
					t.Errorf("%d goroutines leaked", n)
				}
				before := commitsOf(t, &w)
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				if after == nil || !run.IsControl(after) && !errors.Is(after, run.ErrDeadline) {
					t.Errorf("a step after the end: %v", after)
				}
				if rt.Runtime.Leaked() != 0 || givenUp && !slices.Equal(leaked, []int{1, 0}) {
					t.Errorf("leaked %v", leaked)
				}
				var want []string
				for range tc.late {
					want = append(want, journal.KindLate)
				}
				if later := commitsOf(t, &w)[len(before):]; !slices.Equal(later, want) {
					t.Errorf("after the end the log has %q, want %q", later, want)
				}
				for _, l := range facts[journal.Late](t, &w, journal.KindLate) {
					if !strings.Contains(l.Value, "paid") {
						t.Errorf("the late outcome is %q", l.Value)
					}
				}
				if tc.want == run.NeedsReview && tc.budget == 0 {
					reviewed(t, &w, rt)
				}
			})
		})
	}
}

// reviewed decides about the call of a cancelled run, which then ends.
func reviewed(t *testing.T, w *world, rt *inprocess.Runtime) {
	t.Helper()
	v := facts[journal.Review](t, w, journal.KindReview)[0]
	if v.Code != run.CodeCancelled || v.Name != "pay" || !strings.Contains(v.Reason, "nobody knows whether it took effect") {
		t.Errorf("the review is %+v", v)
	}
	resolve := func(decision string) error {
		return rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: decision, Reason: "looked"}})
	}
	if err := resolve(run.Again); !errors.Is(err, run.ErrState) {
		t.Errorf("the call of a cancelled run could be made again: %v", err)
	}
	check(t, resolve(run.Happened))
	if e := ended(t, w); e.State != run.Cancelled || e.Error != "enough" {
		t.Errorf("the run ended as %s: %s", e.State, e.Error)
	}
}

// TestGiveUpAndCancelAgain: a second cancel ends a run whose call needs a review.
func TestGiveUpAndCancelAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		rt := w.runtime(nil)
		ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "pay", func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, tool.NonIdempotent)
			return s, err
		})
		time.AfterFunc(time.Minute, func() { asked(t, rt, true) })
		_ = forward(t, t.Context(), ex, run.NeedsReview)
		asked(t, rt, false)
		if e := ended(t, &w); e.State != run.Cancelled || !strings.Contains(e.Error, "nobody knows") {
			t.Errorf("the run ended as %s: %s", e.State, e.Error)
		}
		time.Sleep(2 * time.Hour)
	})
}

// TestGiveUpCleansUp: the compensations of a run run although its code was given up.
func TestGiveUpCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newResumable(t)
		var calls atomic.Int32
		time.AfterFunc(time.Minute, func() {
			check(t, w.rt.Store.Apply(t.Context(), journal.Signal{To: session.Key{Tenant: session.DefaultTenant, ID: "s-one"}, Run: "one", Cancel: &journal.CancelRequested{Reason: "enough"}}))
		})
		_, did := w.run("one", func(ctx context.Context, s session.Session) (_ session.Session, err error) {
			if s, err = w.order("a")(ctx, s); err == nil && calls.Add(1) == 1 {
				time.Sleep(time.Hour)
			}
			return s, err
		}, run.Cancelled)
		if end := w.end("s-one", "one-cleanup"); did != "a -a" || end == nil || end.State != run.Succeeded {
			t.Errorf("called %s; the cleanup run ended with %+v", did, end)
		}
		time.Sleep(2 * time.Hour)
	})
}
