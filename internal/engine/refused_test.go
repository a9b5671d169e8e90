package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestFanOutRefuses: an invalid fan-out is rejected before a branch begins, with a
// remedy.
func TestFanOutRefuses(t *testing.T) {
	begun := false
	w := flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
		begun = true
		return s, nil
	})
	two := flow.Repeat(2, w)
	for name, c := range map[string]struct {
		branches []flow.Branch
		o        flow.FanOutOptions
		says     string
	}{
		"no branches":       {nil, flow.FanOutOptions{}, "at least one branch"},
		"too many":          {flow.Repeat(run.MaxBranches+1, w), flow.FanOutOptions{}, "at most 1024; nest them"},
		"quorum too large":  {two, flow.FanOutOptions{Quorum: 3}, "a quorum of 3 of 2 branches: choose 1 to 2"},
		"negative quorum":   {two, flow.FanOutOptions{Quorum: -1}, "choose 1 to 2"},
		"first of two":      {two, flow.FanOutOptions{Quorum: 2, First: true}, "cannot be First and a quorum of 2"},
		"one name twice":    {[]flow.Branch{{Name: "a", Workflow: w}, {Name: "a", Workflow: w}}, flow.FanOutOptions{}, `"a": the name is taken`},
		"a reserved name":   {[]flow.Branch{{Name: "gather", Workflow: w}}, flow.FanOutOptions{}, `"gather": the name is taken`},
		"no name":           {[]flow.Branch{{Workflow: w}}, flow.FanOutOptions{}, "branch 0: "},
		"a name of no kind": {[]flow.Branch{{Name: "a b", Workflow: w}}, flow.FanOutOptions{}, `"a b"`},
		"no workflow":       {[]flow.Branch{{Name: "a"}}, flow.FanOutOptions{}, `branch "a" has no workflow`},
	} {
		_, err := (&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.FanOut(ctx, s, c.branches, &c.o)
			return s, err
		}), session.New(session.UserText("go")))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	if begun {
		t.Error("a branch ran")
	}
}

// TestMergeOfNothing: a merge without a required part fails with an error for the author,
// which names the call and the missing part.
func TestMergeOfNothing(t *testing.T) {
	var judge func(context.Context, *flow.Joined) (int, []string, error)
	var score func(context.Context, flow.Outcome) (int, string, error)
	for name, c := range map[string]struct {
		policy flow.Policy
		says   string
	}{
		"no policy":           {nil, "flow: Merge without a policy: give it one, such as flow.SinceAncestor()"},
		"no policy of files":  {flow.WithFiles(nil, flow.KeepBoth, nil), "flow: WithFiles without a policy: give it one"},
		"no compressor":       {flow.Summarise(nil), "flow: Summarise without a compressor: give it one, such as &flow.Compressor{}"},
		"no judge":            {flow.PickBest(judge), "flow: PickBest without a function that judges: give it one"},
		"nothing that scores": {flow.PickHighest(score), "flow: PickHighest without a function that scores: give it one"},
	} {
		_, err := (&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, flow.Repeat(2, say("done")), nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, c.policy)
		}), session.New(session.UserText("go")))
		if err == nil || !strings.HasPrefix(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	_, err := (&inprocess.Runtime{}).Run(t.Context(), flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return flow.Merge(ctx, nil, flow.SinceAncestor())
	}), session.New(session.UserText("go")))
	if err == nil || !strings.HasPrefix(err.Error(), "flow: Merge without a fan-out: give it the result of FanOut") {
		t.Errorf("no fan-out: %v", err)
	}
}

// TestOtherTenant: no session of another tenant is read, joined or forked, even if a
// workflow or a task names it.
func TestOtherTenant(t *testing.T) {
	var w world
	rt := w.runtime(nil)
	foreign := session.Key{Tenant: "other", ID: "theirs"}
	theirs := start(t, rt, func(_ context.Context, s session.Session) (session.Session, error) {
		return s.With(session.UserText("a secret")), nil
	}, func(task *journal.Task) { task.Session = foreign })
	forward(t, t.Context(), theirs, run.Succeeded)
	for name, f := range map[string]func(ctx context.Context, s session.Session) (session.Session, error){
		"read": func(ctx context.Context, _ session.Session) (session.Session, error) {
			return flow.ReadSession(ctx, session.Ref{Key: foreign, Version: 1})
		},
		"concatenate": func(ctx context.Context, s session.Session) (session.Session, error) {
			return flow.Concatenate(ctx, s, theirs.Result())
		},
	} {
		ex := start(t, rt, func(ctx context.Context, s session.Session) (session.Session, error) {
			s, err := say("mine").Forward(ctx, s)
			if err != nil {
				return s, err
			}
			return f(ctx, s)
		}, func(task *journal.Task) { task.ID, task.Session.ID = run.ID(name), session.ID(name) })
		state, err := ex.Forward(t.Context())
		if state != run.Failed || !errors.Is(err, session.ErrTenant) {
			t.Errorf("%s: state %s: %v", name, state, err)
		}
	}
	_, err := rt.Runtime.Begin(t.Context(), flow.Registration{Name: "w", Revision: "1", New: func() flow.Workflow { return say("x") }}, journal.Task{
		ID: "fork", Workflow: "w", Session: session.Key{Tenant: home.Tenant, ID: "fork"}, ForkOf: &session.Ref{Key: foreign, Version: 1},
	})
	if !errors.Is(err, session.ErrTenant) {
		t.Errorf("a fork: %v", err)
	}
}

// TestAnswerTooLate: an expired approval accepts no answer, neither before the run
// resumes nor after.
func TestAnswerTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w world
		work := func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Approve(ctx, "Publish?", &flow.AwaitOptions{Timeout: time.Minute})
			if err != nil && !errors.Is(err, run.ErrExpired) {
				return s, err
			}
			if err == nil {
				t.Error("it is approved")
			}
			return s, flow.Sleep(ctx, time.Hour)
		}
		rt := w.runtime(nil)
		forward(t, t.Context(), start(t, rt, work), run.Waiting)
		time.Sleep(time.Minute)
		check(t, rt.Runtime.Store.Apply(t.Context(), journal.Signal{To: home, Tick: true}))
		late := func(says string) {
			t.Helper()
			for _, kind := range []string{journal.Approve, journal.Refuse} {
				err := talk(t, rt, journal.SignalReceived{Kind: kind, Path: "0", By: "ann"})
				if !errors.Is(err, run.ErrState) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v, want %q", kind, err, says)
				}
			}
		}
		late("has no open question")
		forward(t, t.Context(), start(t, rt, work, resume), run.Waiting)
		late("the time is up")
	})
}
