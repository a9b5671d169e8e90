package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// undo registers a compensation of a name, which fails as often as fail says.
func (w *resumable) undo(ctx context.Context, name string, o flow.DeferOptions) error {
	o.Effect = max(o.Effect, tool.Idempotent)
	return flow.Defer(ctx, "undo "+name, func(context.Context) error {
		w.did = append(w.did, "-"+name)
		if w.fail["-"+name]--; w.fail["-"+name] >= 0 {
			return errors.New("undo is away")
		}
		return nil
	}, o)
}

// order makes steps of these names, each with a compensation. "!" fails, "?" waits for an
// answer, "z" sleeps an hour.
func (w *resumable) order(names ...string) flow.Func {
	return func(ctx context.Context, s session.Session) (_ session.Session, err error) {
		for _, name := range names {
			switch name {
			case "!":
				return s, errors.New("no more")
			case "?":
				_, err = flow.Await[string](ctx, "go on?", nil)
			case "z":
				err = flow.Sleep(ctx, time.Hour)
			default:
				if s, err = w.do(ctx, s, strings.TrimSuffix(name, "*")); err == nil {
					err = w.undo(ctx, name, flow.DeferOptions{Always: strings.HasSuffix(name, "*")})
				}
			}
			if err != nil {
				return s, err
			}
		}
		return s, nil
	}
}

// end returns how a run of a session ended, by the log; nil if it has not.
func (w *resumable) end(home session.ID, id run.ID) *journal.Ended {
	w.t.Helper()
	h, err := w.values.Recording(w.t.Context(), session.Key{Tenant: session.DefaultTenant, ID: home}, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return h.Ended
}

// TestDefer: after an end other than success, and with Always after success, the
// compensations run, the last first, in a run of their own. The end stays.
func TestDefer(t *testing.T) {
	cancel := func(w *resumable) {
		w.driver.Answer = func(ctx context.Context, q run.Question) (any, error) {
			return nil, w.rt.Store.Apply(ctx, journal.Signal{To: session.Key{Tenant: session.DefaultTenant, ID: "s-one"}, Run: "one", Cancel: &journal.CancelRequested{Reason: "enough"}})
		}
	}
	for _, tc := range []struct {
		name, steps string
		want        run.State
		did         string
		set         func(*resumable)
		task        func(*journal.Task)
	}{
		{name: "failure", steps: "a b !", want: run.Failed, did: "a b -b -a"},
		{name: "success", steps: "a b", want: run.Succeeded, did: "a b"},
		{name: "always", steps: "a b* c", want: run.Succeeded, did: "a b c -b*"},
		{name: "failure of a step", steps: "a b c", want: run.Failed, did: "a b c -b -a", set: func(w *resumable) { w.fail["c"] = 1 }},
		{name: "cancel of a wait", steps: "a ? b", want: run.Cancelled, did: "a -a", set: cancel},
		{name: "expiry of a wait", steps: "a ? b", want: run.TimedOut, did: "a -a", task: func(t *journal.Task) { t.Budget.Time = time.Minute }},
		{name: "deadline of a sleep", steps: "a z b", want: run.TimedOut, did: "a -a", task: func(t *journal.Task) { t.Budget.Time = time.Minute }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newResumable(t)
				if tc.set != nil {
					tc.set(w)
				}
				change := func(*journal.Task) {}
				if tc.task != nil {
					change = tc.task
				}
				_, did := w.run("one", w.order(strings.Fields(tc.steps)...), tc.want, change)
				if did != tc.did {
					t.Errorf("called %s, want %s", did, tc.did)
				}
				end := w.end("s-one", "one")
				if end.State != tc.want {
					t.Errorf("the log has %s, want %s", end.State, tc.want)
				}
				if compensated := strings.Contains(tc.did, "-"); compensated != (end.Next != nil) {
					t.Fatalf("the next run is %v", end.Next)
				} else if compensated {
					if c := w.end("s-one", "one-cleanup"); c == nil || c.State != run.Succeeded {
						t.Errorf("the cleanup run ended with %+v", c)
					}
				}
			})
		})
	}
}

// TestNoDefer: a run without compensations makes no commit and no byte more.
func TestNoDefer(t *testing.T) {
	w := newResumable(t)
	w.run("one", w.order("!"), run.Failed)
	n := 0
	for e, err := range w.log.Read(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-one"}, commitlog.Position{}) {
		check(t, err)
		for _, ev := range e.Commit.Events {
			if n++; strings.Contains(ev.Data, "cleanup") || strings.Contains(ev.Data, "defer") {
				t.Errorf("event %s has %s", ev.Kind, ev.Data)
			}
		}
	}
	if n != 5 { // writer, opening, submission, claim, end
		t.Errorf("%d events", n)
	}
}

// TestDeferFails: a compensation that fails ends the cleanup run before the earlier ones. A
// resumption continues there, or after it. The run itself cannot be resumed.
func TestDeferFails(t *testing.T) {
	for _, tc := range []struct {
		from run.Path
		did  string
	}{{"", "-b -a"}, {"9", "-a"}} {
		w := newResumable(t)
		w.fail["-b"] = 1
		f := w.order("a", "b", "c", "!")
		if _, did := w.run("one", f, run.Failed); did != "a b c -c -b" {
			t.Fatalf("called %s", did)
		}
		c := w.end("s-one", "one-cleanup")
		if c.State != run.Failed || !strings.Contains(c.Error, `compensation "undo b" at step 8: undo is away`) {
			t.Fatalf("the cleanup run ended as %s: %s", c.State, c.Error)
		}
		k := session.Key{Tenant: session.DefaultTenant, ID: "s-one"}
		if _, _, err := w.values.ResumptionAt(t.Context(), k, "one", ""); !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), "one-cleanup") {
			t.Errorf("resumption of the run: %v", err)
		}
		if _, _, err := w.values.ResumptionAt(t.Context(), k, "one-cleanup", "3"); !errors.Is(err, run.ErrState) {
			t.Errorf("resumption of the cleanup before its steps: %v", err)
		}
		r, _, err := w.values.ResumptionAt(t.Context(), k, "one-cleanup", tc.from)
		check(t, err)
		if _, did := w.run("one-cleanup-r1", f, run.Succeeded, func(t *journal.Task) { t.Resumes = r }); did != tc.did {
			t.Errorf("from %q it called %s, want %s", tc.from, did, tc.did)
		}
	}
}

// TestFirstDeferFails: the compensation that runs first is resumed like others.
func TestFirstDeferFails(t *testing.T) {
	w := newResumable(t)
	w.fail["-a"] = 1
	f := w.order("a", "!")
	w.run("one", f, run.Failed)
	r, _, err := w.values.ResumptionAt(t.Context(), session.Key{Tenant: session.DefaultTenant, ID: "s-one"}, "one-cleanup", "")
	check(t, err)
	if _, did := w.run("one-cleanup-r1", f, run.Succeeded, func(t *journal.Task) { t.Resumes = r }); did != "-a" {
		t.Errorf("called %s", did)
	}
}

// TestDeferHangs: the context of a compensation ends, and one that ignores it is left.
func TestDeferHangs(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newResumable(t)
			leave := make(chan struct{})
			defer close(leave)
			began := time.Now()
			w.run("one", func(ctx context.Context, s session.Session) (session.Session, error) {
				err := flow.Defer(ctx, "hang", func(ctx context.Context) error {
					if deaf {
						<-leave
					}
					<-ctx.Done()
					return ctx.Err()
				}, flow.DeferOptions{Effect: tool.Idempotent, Timeout: 5 * time.Second})
				return s, errors.Join(err, errors.New("no more"))
			}, run.Failed)
			c := w.end("s-one", "one-cleanup")
			if c.State != run.Failed || !strings.Contains(c.Error, "it did not end in 5s") {
				t.Errorf("the cleanup run ended as %s: %s", c.State, c.Error)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestDeferMakesNoSteps: a compensation opens no branches and makes no steps.
func TestDeferMakesNoSteps(t *testing.T) {
	w := newResumable(t)
	var nested error
	w.run("one", func(ctx context.Context, s session.Session) (session.Session, error) {
		err := flow.Defer(ctx, "branch", func(c context.Context) error {
			_, nested = flow.FanOut(c, s, []flow.Branch{{Name: "x", Workflow: w.order()}}, nil)
			if _, err := flow.Do(ctx, "y", func(context.Context) (int, error) { return 0, nil }, tool.ReadOnly); !errors.Is(err, run.ErrNestedStep) {
				t.Errorf("a step with Forward's context: %v", err)
			}
			return nil
		}, flow.DeferOptions{Effect: tool.Idempotent})
		return s, errors.Join(err, errors.New("no more"))
	}, run.Failed)
	if !errors.Is(nested, run.ErrNestedStep) {
		t.Errorf("a fan-out in a compensation: %v", nested)
	}
}

// TestDeferRefused: branches have no compensations, and neither do runs with long ids or
// without a step left.
func TestDeferRefused(t *testing.T) {
	w := newResumable(t)
	var got error
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		got = w.undo(ctx, "x", flow.DeferOptions{})
		return s, nil
	}
	w.run("branch", func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "x", Workflow: flow.Func(f)}}, nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	}, run.Succeeded)
	if !errors.Is(got, run.ErrNotSupported) {
		t.Errorf("in a branch: %v", got)
	}
	w.run(run.ID(strings.Repeat("x", 57)), f, run.Succeeded, func(t *journal.Task) { t.Session.ID = "s-long" })
	if !errors.Is(got, run.ErrNotSupported) {
		t.Errorf("with a long id: %v", got)
	}
	w.run("poor", f, run.Succeeded, func(t *journal.Task) { t.Budget.Steps = 1 })
	if !errors.Is(got, run.ErrBudget) {
		t.Errorf("without a step for it: %v", got)
	}
}

// TestDeferFirst: a cleanup run goes before the runs that wait for the session, and its
// code replays what the ended run did, with its forks and branches.
func TestDeferFirst(t *testing.T) {
	w := newResumable(t)
	k := session.Key{Tenant: session.DefaultTenant, ID: "s-one"}
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "x", Workflow: flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return w.do(ctx, s, "x")
		})}}, nil)
		if err != nil {
			return s, err
		}
		if s, err = flow.Merge(ctx, j, flow.SinceAncestor()); err != nil {
			return s, err
		}
		b, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if _, err = w.do(ctx, b, "y"); err != nil {
			return s, err
		}
		text := fmt.Sprint(s.Len())
		if err := flow.Defer(ctx, "undo", func(context.Context) error { w.did = append(w.did, "-"+text); return nil }, flow.DeferOptions{Effect: tool.Idempotent}); err != nil {
			return s, err
		}
		_, err = w.rt.Store.Claim(ctx, journal.Claim{Session: k, Home: k, Run: "later", Task: &journal.Task{ID: "later", Workflow: "w", Session: k}, Enqueue: true})
		return s, errors.Join(err, errors.New("no more"))
	}
	if _, did := w.run("one", f, run.Failed); did != "x y -1" {
		t.Errorf("called %s", did)
	}
	if next := w.end("s-one", "one-cleanup").Next; next == nil || next.Run != "later" {
		t.Errorf("after the cleanup comes %v", next)
	}
	w.run("later", w.order(), run.Succeeded, func(t *journal.Task) { t.Session, t.Resume = k, true })
}

// TestDeferOfOtherCode: code that does not come to a recorded compensation stops the
// cleanup run for a review.
func TestDeferOfOtherCode(t *testing.T) {
	w := newResumable(t)
	calls := 0
	f := func(ctx context.Context, s session.Session) (session.Session, error) {
		if calls++; calls == 1 {
			err := w.undo(ctx, "x", flow.DeferOptions{})
			return s, errors.Join(err, errors.New("no more"))
		}
		return s, nil
	}
	task := journal.Task{ID: "one", Workflow: "w", Session: session.Key{Tenant: session.DefaultTenant, ID: "s-one"}}
	_, state, err := w.driver.Run(t.Context(), &w.rt, flow.Registration{Name: "w", New: func() flow.Workflow { return flow.Func(f) }}, task)
	if state != run.NeedsReview || !strings.Contains(fmt.Sprint(err), `step 0, which registers compensation "undo x"`) {
		t.Errorf("it is %s: %v", state, err)
	}
}
