package engine_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// penny is a model whose every call uses one token.
func penny(used *atomic.Int64) llm.Models {
	return client(func(context.Context, *llm.Request) (*llm.Response, error) {
		used.Add(1)
		return &llm.Response{Text: "ok", Finish: llm.FinishStop, Usage: session.Usage{Input: 1}}, nil
	})
}

// spends asks a model n times.
func spends(ctx context.Context, s session.Session, n int) (session.Session, error) {
	var err error
	for i := range n {
		if s, err = (&flow.Agent{Name: "a"}).Forward(ctx, s.With(session.UserText(fmt.Sprint(i)))); err != nil {
			return s, err
		}
	}
	return s, nil
}

// hanging is a branch that asks a model n times, closes spent, and then hangs: until it
// is cancelled, or, if stubborn, for at least an hour.
func hanging(n int, spent chan struct{}, stubborn bool) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		defer close(spent)
		s, err := spends(ctx, s, n)
		if err != nil {
			return s, err
		}
		_, err = flow.Do(ctx, "hang", func(ctx context.Context) (int, error) {
			spent <- struct{}{}
			if stubborn {
				time.Sleep(time.Hour)
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}, tool.ReadOnly)
		return s, err
	})
}

// after is a branch that succeeds once a channel has a value.
func after(spent chan struct{}) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "wait", func(context.Context) (int, error) { <-spent; return 0, nil }, tool.NonIdempotent)
		return s.With(session.UserText("won")), err
	})
}

// race fans out to a branch that hangs after n calls of a model and a branch that then
// wins.
func race(ctx context.Context, s session.Session, n int, spent chan struct{}, stubborn bool) (session.Session, error) {
	j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "lose", Workflow: hanging(n, spent, stubborn)}, {Name: "win", Workflow: after(spent)}},
		&flow.FanOutOptions{First: true})
	if err != nil {
		return s, err
	}
	return flow.Merge(ctx, j, flow.Pick(-1))
}

// drive runs a function with its branches in this process, on the world's log.
func drive(t *testing.T, w *world, m llm.Models, budget run.Budget, f flow.Func) (run.State, error) {
	t.Helper()
	values := journal.NewValues(&w.Memory)
	var d inprocess.Driver
	rt := &inprocess.Runtime{Runtime: engine.Runtime{
		Values: values, Models: m,
		Store: journal.NewStore(&w.Memory, &journal.StoreOptions{Values: values, OnCommit: d.Committed}),
	}}
	task := journal.Task{ID: "r", Workflow: "w", Session: home, Budget: budget}
	_, state, err := d.Run(t.Context(), &rt.Runtime, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return f }}, task)
	return state, err
}

// TestLosersAreCharged: branches that did not decide a join are charged with their usage:
// the run reports it, and stays within its budget.
func TestLosersAreCharged(t *testing.T) {
	const rounds, calls = 8, 30
	for _, tokens := range []int64{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			var w world
			var used atomic.Int64
			var spent [rounds]chan struct{}
			for i := range spent {
				spent[i] = make(chan struct{}, 1)
			}
			state, err := drive(t, &w, penny(&used), run.Budget{Tokens: tokens}, func(ctx context.Context, s session.Session) (session.Session, error) {
				for i := range rounds {
					var err error
					if s, err = race(ctx, s, calls, spent[i], false); err != nil {
						return s, err
					}
				}
				return s, flow.Sleep(ctx, time.Second) // meanwhile the last one reports
			})
			if state != run.Succeeded && run.CodeOf(err) != run.CodeBudget {
				t.Fatalf("state %s: %v", state, err)
			}
			switch n := used.Load(); {
			case tokens > 0 && n > tokens:
				t.Errorf("the models gave %d tokens of %d", n, tokens)
			case tokens == 0 && n != rounds*calls:
				t.Errorf("the models gave %d tokens", n)
			}
			if e := ended(t, &w); state == run.Succeeded && (e.Usage.Tokens() != used.Load() || e.Lost != session.Usage{}) {
				t.Errorf("the run says that it used %+v and lost %+v; the models gave %d tokens", e.Usage, e.Lost, used.Load())
			}
		})
	}
}

// TestLoserOutlivesRun: a branch whose end is unknown when the run ends counts with its
// maximum usage, as an estimate.
func TestLoserOutlivesRun(t *testing.T) {
	for _, tokens := range []int64{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			var w world
			var used atomic.Int64
			spent := make(chan struct{}, 1)
			state, err := drive(t, &w, penny(&used), run.Budget{Tokens: tokens}, func(ctx context.Context, s session.Session) (session.Session, error) {
				s, err := race(ctx, s, 3, spent, true)
				if err != nil {
					return s, err
				}
				return spends(ctx, s, 2)
			})
			if state != run.Succeeded {
				t.Fatalf("state %s: %v", state, err)
			}
			e := ended(t, &w)
			if own := e.Usage.Sub(e.Lost); own.Tokens() != 2 || own.Calls != 2 || e.Lost != (session.Usage{Input: tokens / 2}) {
				t.Errorf("the run used %+v and lost %+v", e.Usage, e.Lost)
			}
			time.Sleep(2 * time.Hour) // the branch ignores its context
		})
	}
}

// TestLoserHoldsItsPart: the part of the budget that a branch may still use is not
// available to others.
func TestLoserHoldsItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var used atomic.Int64
		spent := make(chan struct{}, 1)
		state, err := drive(t, &w, penny(&used), run.Budget{Tokens: 100}, func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := race(ctx, s, 30, spent, true)
			if err != nil {
				return s, err
			}
			if n, err := spends(ctx, s, 60); run.CodeOf(err) != run.CodeBudget {
				return n, fmt.Errorf("60 of 50 tokens: %w", err)
			}
			if err := flow.Sleep(ctx, 2*time.Hour); err != nil {
				return s, err
			}
			return s, nil
		})
		if run.CodeOf(err) != run.CodeMismatch && state != run.Succeeded && state != run.Failed {
			t.Fatalf("state %s: %v", state, err)
		}
		if n := used.Load(); n != 80 {
			t.Errorf("the models gave %d tokens: 30 to the branch and 50 to the run", n)
		}
		if e := ended(t, &w); e.Usage.Tokens() != 80 || e.Lost != (session.Usage{}) {
			t.Errorf("an hour later the run says that it used %+v and lost %+v", e.Usage, e.Lost)
		}
	})
}

// TestHeldBranchesHoldNothing: branches that never began release their part at once.
func TestHeldBranchesHoldNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		var used atomic.Int64
		first := &flow.FanOutOptions{First: true, WarmFirst: true}
		state, err := drive(t, &w, penny(&used), run.Budget{Tokens: 120}, func(ctx context.Context, s session.Session) (session.Session, error) {
			for range 3 {
				j, err := flow.FanOut(ctx, s, flow.Repeat(4, say("hello")), first)
				if err != nil {
					return s, err
				}
				if s, err = flow.Merge(ctx, j, flow.Pick(-1)); err != nil {
					return s, err
				}
			}
			return s, nil
		})
		if state != run.Succeeded {
			t.Fatalf("state %s: %v", state, err)
		}
		for _, f := range facts[journal.FanOut](t, &w, journal.KindFanOut) {
			if f.Budget.Tokens != 30 {
				t.Errorf("the fan-out at step %s gives each branch %d tokens", f.Path, f.Budget.Tokens)
			}
		}
		if e := ended(t, &w); e.Usage != (session.Usage{}) || e.Lost != (session.Usage{}) {
			t.Errorf("the run used %+v and lost %+v", e.Usage, e.Lost)
		}
	})
}

// TestStepsOfBranchesAreCharged: the steps of branches count as those of the run that
// opened them, whether the join gathered them or was decided without them, and the end of
// the run has their number.
func TestStepsOfBranchesAreCharged(t *testing.T) {
	three := func(ctx context.Context, s session.Session) (session.Session, error) { return spends(ctx, s, 3) }
	for name, round := range map[string]func(ctx context.Context, s session.Session, spent chan struct{}) (session.Session, error){
		"all": func(ctx context.Context, s session.Session, _ chan struct{}) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, flow.Repeat(2, flow.Func(three)), nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.Pick(0))
		},
		"losers": func(ctx context.Context, s session.Session, spent chan struct{}) (session.Session, error) {
			return race(ctx, s, 6, spent, false)
		},
	} {
		for _, steps := range []int64{0, 60} {
			t.Run(fmt.Sprint(name, steps), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var w world
					var used atomic.Int64
					var spent [20]chan struct{}
					for i := range spent {
						spent[i] = make(chan struct{}, 1)
					}
					state, err := drive(t, &w, penny(&used), run.Budget{Steps: steps}, func(ctx context.Context, s session.Session) (session.Session, error) {
						var err error
						for i := 0; i < len(spent) && err == nil; i++ {
							if s, err = round(ctx, s, spent[i]); err == nil {
								err = flow.Sleep(ctx, time.Second) // meanwhile losers report
							}
						}
						return s, err
					})
					if (state == run.Succeeded) != (steps == 0) {
						t.Fatalf("state %s: %v", state, err)
					}
					own := int64(len(facts[journal.StepCompleted](t, &w, journal.KindStepCompleted)))
					switch e := ended(t, &w); {
					case steps > 0 && own+used.Load() > steps:
						t.Errorf("the run took %d steps and its branches asked models %d times, of %d steps", own, used.Load(), steps)
					case steps == 0 && e.Steps < own+used.Load():
						t.Errorf("the run says that it took %d steps; it took %d and its branches at least %d", e.Steps, own, used.Load())
					}
				})
			})
		}
	}
}
