package flowtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// fan plans, lets two branches write in their own copies of the files, one of
// them with branches of its own, and picks one.
type fan struct {
	plan, write, judge *flow.Agent
	o                  *flow.FanOutOptions
}

func (w *fan) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	s, err := w.plan.Forward(ctx, s)
	if err != nil {
		return s, err
	}
	goal := s.Text()
	nested := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s.With(session.UserText("both ways: "+goal)), flow.Repeat(2, w.write), w.o)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "one", Workflow: w.write}, {Name: "two", Workflow: nested}}, w.o)
	if err != nil {
		return s, err
	}
	if s, err = flow.Merge(ctx, j, flow.PickBest(w.judge.Judge)); err != nil {
		return s, err
	}
	n, err := flow.Do(ctx, "count", func(context.Context) (int, error) { return s.Len(), nil }, tool.ReadOnly)
	if err != nil {
		return s, err
	}
	return s.With(session.UserText(fmt.Sprintf("%d rows", n))), nil
}

func newFan() flow.Workflow {
	return &fan{
		plan:  &flow.Agent{Name: "plan", Prompt: "You plan."},
		write: &flow.Agent{Name: "write", Prompt: "You write."},
		judge: &flow.Agent{Name: "judge", Prompt: "You judge."},
	}
}

func TestFanOut(t *testing.T) {
	s := flowtest.Run(t, newFan(), session.New(session.UserText("a song")), "testdata/fan.txtar", nil)
	if got, want := s.Text(), "la la"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

func TestFanOutCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, newFan, session.New(session.UserText("a song")), "testdata/fan.txtar", nil)
}

// TestPickHighest: the branch with the highest score is taken, the first one of equal
// scores; the scores are steps, also after a crash at any commit, and the reasons of the
// others.
func TestPickHighest(t *testing.T) {
	says := func(text string) flow.Workflow {
		return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) {
			return s.With(session.UserText(text)), nil
		})
	}
	last := func(s session.Session) string {
		c, _ := s.At(s.Len() - 1)
		return c.Text()
	}
	newScored := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "a", Workflow: says("one")}, {Name: "b", Workflow: says("three")}, {Name: "c", Workflow: says("seven")}}, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.PickHighest(func(ctx context.Context, o flow.Outcome) (int, string, error) {
				n, err := flow.Do(ctx, "letters of "+o.Name, func(context.Context) (int, error) { return len(last(o.Session)), nil }, tool.ReadOnly)
				return n, "its letters\nare counted", err
			}))
		})
	}
	s := flowtest.Run(t, newScored(), session.New(session.UserText("a number")), "testdata/fan.txtar", nil)
	if last(s) != "three" {
		t.Errorf("it says %q", last(s))
	}
	flowtest.CrashEverywhere(t, newScored, session.New(session.UserText("a number")), "testdata/fan.txtar", nil)
}

// TestWarmFirstCrashEverywhere: likewise if the branches wait for the first one's first
// answer.
func TestWarmFirstCrashEverywhere(t *testing.T) {
	t.Parallel()
	newWarm := func() flow.Workflow {
		w := newFan()
		w.(*fan).o = &flow.FanOutOptions{WarmFirst: true}
		return w
	}
	flowtest.CrashEverywhere(t, newWarm, session.New(session.UserText("a song")), "testdata/fan.txtar", nil)
}

// TestBranchOfItsOwnCrashEverywhere: a branch ends with a fork that it made, and so does
// a branch of that branch.
func TestBranchOfItsOwnCrashEverywhere(t *testing.T) {
	t.Parallel()
	say := func(ctx context.Context, s session.Session, text string) (session.Session, error) {
		text, err := flow.Do(ctx, "say", func(context.Context) (string, error) { return text, nil }, tool.ReadOnly)
		return s.With(session.UserText(text)), err
	}
	forked := func(text string) flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			b, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			return say(ctx, b, text)
		})
	}
	newFork := func() flow.Workflow {
		outer := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			b, err := flow.Fork(ctx, s)
			if err != nil {
				return s, err
			}
			j, err := flow.FanOut(ctx, b, []flow.Branch{{Name: "x", Workflow: forked("inner")}, {Name: "y", Workflow: forked("other")}}, nil)
			if err != nil {
				return b, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		})
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "one", Workflow: outer}, {Name: "two", Workflow: forked("outer")}}, nil)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.SinceAncestor())
		})
	}
	flowtest.CrashEverywhere(t, newFork, session.New(session.UserText("a song")), "testdata/fan.txtar", nil)
}
