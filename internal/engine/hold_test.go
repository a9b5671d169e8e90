package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func holding(task *journal.Task) { task.OnFailure = run.Hold }

// TestHold: a run that holds waits for a decision when a policy is exhausted. Each
// decision makes one more try under a new number, and the call before it is made once.
func TestHold(t *testing.T) {
	for _, e := range []tool.Effect{tool.Idempotent, tool.NonIdempotent} {
		t.Run(e.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				before, calls := 0, 0
				f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					if _, err := flow.Do(ctx, "before", func(context.Context) (int, error) { before++; return 1, nil }, tool.NonIdempotent); err != nil {
						return s, err
					}
					p := tool.Retry{Times: 2}
					if e == tool.NonIdempotent {
						p.Times = 1
					}
					_, err := flow.Do(ctx, "fetch", func(context.Context) (int, error) {
						if calls++; calls < 4 {
							return 0, errDown
						}
						return calls, nil
					}, e, p)
					return s, err
				})
				want := []string{"0 0s ", "1.try.1 1s error", "1.try.2 0s error", "1.try.3 0s error", "1 0s "}
				if e == tool.NonIdempotent {
					want[1] = "1.try.1 0s error"
				}
				made := 2 // calls at the first decision
				if e == tool.NonIdempotent {
					made = 1
				}
				rt := w.runtime(nil)
				forward(t, t.Context(), start(t, rt, f, holding), run.NeedsReview)
				for ; made < 4; made++ {
					r := must(rt.Runtime.Values.Recorded(t.Context(), home, "r")).Record
					if r.State != run.NeedsReview || r.Review.Expires == 0 || r.Review.Path != "1" || !strings.Contains(r.Review.Reason, errDown.Error()) {
						t.Fatalf("%s: %+v", r.State, r.Review)
					}
					if calls != made || before != 1 {
						t.Fatalf("%d calls after %d of them should be made, and %d before", calls, made, before)
					}
					check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again, By: "ana", Reason: "try"}}))
					state := run.NeedsReview
					if made == 3 {
						state = run.Succeeded
					}
					rt = w.runtime(nil)
					forward(t, t.Context(), start(t, rt, f, holding, resume), state)
				}
				if diff := cmp.Diff(want, w.tried(t)); diff != "" {
					t.Error(diff)
				}
				r := must(engine.Replay(t.Context(), &rt.Runtime, flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return f }}, home, "r"))
				if !r.Matches() {
					t.Errorf("the replay differs: %s", r.Differs)
				}
			})
		})
	}
}

// TestHoldDecided: the other decisions about a step that failed for the last time, and
// failures at which a run does not hold.
func TestHoldDecided(t *testing.T) {
	for _, tt := range []struct {
		name     string
		err      error
		decision journal.Resolved
		state    run.State
	}{
		{"happened", errDown, journal.Resolved{Decision: run.Happened, Value: `7`}, run.Succeeded},
		{"fail", errDown, journal.Resolved{Decision: run.Fail}, run.Failed},
		{"permanent", flow.Permanent(errDown), journal.Resolved{}, run.Failed},
		{"nothing found", session.ErrNotFound, journal.Resolved{}, run.Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w world
				got := 0
				f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
					n, err := flow.Do(ctx, "fetch", func(context.Context) (int, error) { return 0, tt.err }, tool.ReadOnly, tool.Retry{Times: 1})
					got = n
					return s, err
				})
				rt := w.runtime(nil)
				if tt.decision.Decision == "" {
					forward(t, t.Context(), start(t, rt, f, holding), tt.state)
					return
				}
				forward(t, t.Context(), start(t, rt, f, holding), run.NeedsReview)
				check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &tt.decision}))
				if tt.decision.Decision == run.Happened {
					forward(t, t.Context(), start(t, w.runtime(nil), f, holding, resume), tt.state)
					if got != 7 {
						t.Errorf("the step returned %d", got)
					}
				}
				if r := must(rt.Runtime.Values.Recorded(t.Context(), home, "r")).Record; r.State != tt.state {
					t.Errorf("the run is %s", r.State)
				}
			})
		})
	}
}

// TestHeldTryAndCrash: the process dies between the record of the last try and the review.
// The next one makes no try without a decision.
func TestHeldTryAndCrash(t *testing.T) {
	for _, e := range []tool.Effect{tool.Idempotent, tool.NonIdempotent} {
		var w world
		calls := 0
		f := attempt(&calls, func(_ context.Context, n int) error { return map[bool]error{true: errDown}[n == 1] }, e, tool.Retry{Times: 1})
		log := &deafLog{&w.Memory, func(c commitlog.Commit) bool {
			return slices.ContainsFunc(c.Events, func(e session.Event) bool { return e.Kind == journal.KindReview })
		}}
		values := journal.NewValues(log)
		dead := &inprocess.Runtime{Runtime: engine.Runtime{Store: journal.NewStore(log, &journal.StoreOptions{Values: values}), Values: values}}
		if state, err := start(t, dead, f, holding).Forward(t.Context()); state != run.Running {
			t.Fatalf("without the review: %s, %v", state, err)
		}
		rt := w.runtime(nil)
		forward(t, t.Context(), start(t, rt, f, holding, resume), run.NeedsReview)
		if calls != 1 {
			t.Errorf("%s: %d calls before a decision", e, calls)
		}
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &journal.Resolved{Decision: run.Again}}))
		forward(t, t.Context(), start(t, w.runtime(nil), f, holding, resume), run.Succeeded)
		if calls != 2 {
			t.Errorf("%s: %d calls after it", e, calls)
		}
	}
}

// TestHeldCallIsClosed: a call that failed, and holds its run, has an outcome. The run's end
// does not leave it open.
func TestHeldCallIsClosed(t *testing.T) {
	var w world
	f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.Do(ctx, "pay", func(context.Context) (int, error) { return 0, errDown }, tool.NonIdempotent)
		return s, err
	})
	rt := w.runtime(nil)
	forward(t, t.Context(), start(t, rt, f, holding), run.NeedsReview)
	check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Cancel: &journal.CancelRequested{Reason: "enough"}}))
	if r := must(rt.Runtime.Values.Recorded(t.Context(), home, "r")).Record; r.State != run.Cancelled || strings.Contains(r.Ended.Error, "nobody knows") {
		t.Errorf("%s: %+v", r.State, r.Ended)
	}
}

// TestHoldAtFailedRead: a step without tries returns its failure to the workflow.
func TestHoldAtFailedRead(t *testing.T) {
	var w world
	handled := false
	f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		_, err := flow.ReadSession(ctx, session.Ref{Key: session.Key{Tenant: session.DefaultTenant, ID: "nobody"}, Version: 3})
		handled = err != nil
		return s, nil
	})
	forward(t, t.Context(), start(t, w.runtime(nil), f, holding), run.Succeeded)
	if !handled {
		t.Error("the workflow did not get the failure")
	}
}

// TestHoldExpires: a run that nobody decides about fails after the time of a review.
func TestHoldExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "fetch", func(context.Context) (int, error) { return 0, errDown }, tool.NonIdempotent)
			return s, err
		})
		rt := w.runtime(nil)
		forward(t, t.Context(), start(t, rt, f, holding), run.NeedsReview)
		time.Sleep(journal.DefaultExpiry)
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Tick: true}))
		if r := must(rt.Runtime.Values.Recorded(t.Context(), home, "r")).Record; r.State != run.Failed || r.Ended.Code != run.CodeExpired {
			t.Errorf("%s, %+v", r.State, r.Ended)
		}
	})
}

// TestHoldAtModel: a run that holds at a call of a model makes one more call after a
// decision, and takes no value for it.
func TestHoldAtModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		calls := 0
		model := client(func(context.Context, *llm.Request) (*llm.Response, error) {
			if calls++; calls < 3 {
				return nil, errors.New("no such key")
			}
			return &llm.Response{Text: "hello", Finish: llm.FinishStop}, nil
		})
		f := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			return (&flow.Agent{Name: "writer"}).Forward(ctx, s.With(session.UserText("go")))
		})
		rt := w.runtime(model)
		forward(t, t.Context(), start(t, rt, f, holding), run.NeedsReview)
		for _, d := range []journal.Resolved{{Decision: run.Happened, Value: `"hi"`}, {Decision: run.Again}, {Decision: run.Again}} {
			check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Run: "r", Resolve: &d}))
			state := run.NeedsReview
			if calls == 2 {
				state = run.Succeeded
			}
			rt = w.runtime(model)
			forward(t, t.Context(), start(t, rt, f, holding, resume), state)
		}
		if diff := cmp.Diff([]string{"0.try.1 0s error", "0.try.2 0s error", "0 0s "}, w.tried(t)); diff != "" || calls != 3 {
			t.Errorf("%d calls: %s", calls, diff)
		}
	})
}
