package engine_test

import (
	"context"
	"errors"
	"sync"
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

// TestDeadlineInThePast: a run whose deadline has passed when it is claimed does no work,
// however quick its workflow is.
func TestDeadlineInThePast(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var w world
			called := false
			ex := start(t, w.runtime(nil), func(_ context.Context, s session.Session) (session.Session, error) {
				called = true
				return s.With(session.UserText("done")), nil
			}, func(task *journal.Task) { task.Deadline = time.Now() })
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

// TestRebudgetTime: an executing run ends at the end of its new budget of time, be that
// later or sooner.
func TestRebudgetTime(t *testing.T) {
	for _, tt := range []struct {
		before, after time.Duration
		state         run.State
		took          time.Duration
	}{
		{time.Minute, time.Hour, run.Succeeded, 10 * time.Minute},
		{time.Minute, 0, run.Succeeded, 10 * time.Minute},
		{time.Hour, 5 * time.Minute, run.TimedOut, 5 * time.Minute},
		{0, 5 * time.Minute, run.TimedOut, 5 * time.Minute},
		{time.Hour, time.Second, run.TimedOut, 30 * time.Second},
	} {
		t.Run(tt.before.String()+" "+tt.after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				rt := w.runtime(nil)
				ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
					_, err := flow.Do(ctx, "long", func(ctx context.Context) (int, error) {
						select {
						case <-time.After(10 * time.Minute):
							return 1, nil
						case <-ctx.Done():
							return 0, context.Cause(ctx)
						}
					}, tool.ReadOnly)
					return s, err
				}, func(task *journal.Task) { task.Budget.Time = tt.before })
				time.AfterFunc(30*time.Second, func() {
					b := journal.Rebudgeted{Budget: run.Budget{Time: tt.after}}
					if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Rebudget: &b}); err != nil {
						t.Error(err)
					}
				})
				began := time.Now()
				state, err := ex.Forward(t.Context())
				if took := time.Since(began); state != tt.state || took != tt.took {
					t.Errorf("state %s after %s, want %s after %s: %v", state, took, tt.state, tt.took, err)
				}
			})
		})
	}
}

// TestRebudgetTimeOfBranches: the deadline of a run applies to its branches, and to
// theirs, when its budget changes while they run. The author's own timeouts stay.
func TestRebudgetTimeOfBranches(t *testing.T) {
	type branches = []flow.Branch
	for _, tt := range []struct {
		before, after, allowed time.Duration
		state                  run.State
		took                   time.Duration
	}{
		{time.Minute, time.Hour, 0, run.Succeeded, 10 * time.Minute},
		{time.Minute, 0, 0, run.Succeeded, 10 * time.Minute},
		{time.Minute, time.Hour, 2 * time.Minute, run.Failed, 2 * time.Minute},
		{time.Hour, 5 * time.Minute, 0, run.TimedOut, 5 * time.Minute},
		{0, 5 * time.Minute, 0, run.TimedOut, 5 * time.Minute},
		{time.Hour, time.Second, 0, run.TimedOut, 30 * time.Second},
	} {
		t.Run(tt.before.String()+" "+tt.after.String()+" "+tt.allowed.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, d := &commitlog.Memory{}, &inprocess.Driver{}
				values := journal.NewValues(log)
				rt := &inprocess.Runtime{Runtime: engine.Runtime{Values: values, Store: journal.NewStore(log, &journal.StoreOptions{Values: values, OnCommit: d.Committed})}}
				var mu sync.Mutex
				ended := map[string]time.Duration{}
				began := time.Now()
				long := func(name string) flow.Workflow {
					return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
						_, err := flow.Do(ctx, "long", func(ctx context.Context) (int, error) {
							defer func() {
								mu.Lock()
								defer mu.Unlock()
								ended[name] = time.Since(began)
							}()
							select {
							case <-time.After(10 * time.Minute):
								return 1, nil
							case <-ctx.Done():
								return 0, context.Cause(ctx)
							}
						}, tool.ReadOnly)
						return s, err
					})
				}
				wide := func(bs branches, allowed time.Duration) flow.Workflow {
					return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
						j, err := flow.FanOut(ctx, s, bs, &flow.FanOutOptions{Timeout: allowed})
						if err == nil && len(j.Succeeded()) != len(bs) {
							err = errors.New("a branch did not succeed")
						}
						if err != nil {
							return s, err
						}
						return flow.Merge(ctx, j, flow.SinceAncestor())
					})
				}
				outer := wide(branches{{Name: "a", Workflow: long("outer")}, {Name: "b", Workflow: wide(branches{{Name: "c", Workflow: long("inner")}}, 0)}}, tt.allowed)
				time.AfterFunc(30*time.Second, func() {
					b := journal.Rebudgeted{Budget: run.Budget{Time: tt.after}}
					if err := rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Rebudget: &b}); err != nil {
						t.Error(err)
					}
				})
				task := journal.Task{ID: "r", Workflow: "w", Session: home, Budget: run.Budget{Time: tt.before}}
				_, state, err := d.Run(t.Context(), &rt.Runtime, flow.Registration{Name: "w", New: func() flow.Workflow { return outer }}, task)
				took := time.Since(began)
				if state != tt.state || took.Round(time.Second) != tt.took {
					t.Errorf("state %s after %s, want %s after %s: %v", state, took, tt.state, tt.took, err)
				}
				for _, name := range []string{"outer", "inner"} {
					if at := ended[name].Round(time.Second); at != tt.took {
						t.Errorf("the %s branch ended after %s, want %s", name, at, tt.took)
					}
				}
			})
		})
	}
}

// TestDeadlineKeepsUsage: a run that is resumed after its deadline reports its earlier
// usage, including that of its forks, although its code reaches none of it.
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
			_, err = flow.Do(ctx, "hang", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }, tool.ReadOnly)
			return branch, err
		}
		within := func(d time.Duration) func(*journal.Task) {
			return func(task *journal.Task) { task.Deadline = time.Now().Add(d) }
		}
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(run.ErrShutdown) })
		forward(t, ctx, start(t, w.runtime(penny(&used)), f, within(time.Minute)), run.Queued)
		ctx, stop = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(run.ErrShutdown) })
		forward(t, ctx, start(t, w.runtime(penny(&used)), f, resume), run.Queued)
		time.Sleep(time.Hour)
		state, err := start(t, w.runtime(penny(&used)), f, resume).Forward(t.Context())
		if state != run.TimedOut {
			t.Fatalf("state %s: %v", state, err)
		}
		if e := ended(t, &w); e.Usage != (session.Usage{Calls: 5, Input: 5}) || e.Lost != (session.Usage{}) {
			t.Errorf("the run used %+v and lost %+v of %d tokens", e.Usage, e.Lost, used.Load())
		}
	})
}

// TestWhyCancelled: a branch that did not end has the reason that it was too slow or not
// needed.
func TestWhyCancelled(t *testing.T) {
	slow := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "slow", func(context.Context) (int, error) { time.Sleep(time.Hour); return 0, nil }, tool.ReadOnly)
		return s, err
	})
	for _, tt := range []struct {
		name   string
		o      flow.FanOutOptions
		reason string
	}{
		{"deadline", flow.FanOutOptions{Timeout: time.Minute}, "the deadline of the fan-out passed"},
		{"first", flow.FanOutOptions{Timeout: time.Minute, First: true}, "the join was decided without it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				must((&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "slow", Workflow: slow}, {Name: "quick", Workflow: say("quick")}}, &tt.o)
					if err != nil {
						return s, err
					}
					if o := j.Outcomes[0]; o.State != run.Cancelled || o.Err == nil || o.Err.Error() != tt.reason {
						t.Errorf("the slow branch is %s: %v, want %q", o.State, o.Err, tt.reason)
					}
					return flow.Merge(ctx, j, flow.Pick(-1))
				}), session.New(session.UserText("go"))))
				time.Sleep(2 * time.Hour) // the slow branch ignores its context
			})
		})
	}
}
