package flowtest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// race lets branches of different length run until enough of them have succeeded, and
// takes the rows of the first that has.
func race(o *flow.FanOutOptions, steps ...int) func() flow.Workflow {
	branch := func(n int) flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			for i := range n {
				v, err := flow.Do(ctx, "work", func(context.Context) (int, error) { return i, nil }, tool.ReadOnly)
				if err != nil {
					return s, err
				}
				s = s.With(session.AssistantText(fmt.Sprintf("part %d", v)))
			}
			return s.With(session.AssistantText(fmt.Sprintf("finished after %d", n))), nil
		})
	}
	return func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			var bs []flow.Branch
			for i, n := range steps {
				bs = append(bs, flow.Branch{Name: fmt.Sprintf("b%d", i), Workflow: branch(n)})
			}
			j, err := flow.FanOut(ctx, s, bs, o)
			if err != nil {
				return s, err
			}
			return flow.Merge(ctx, j, flow.Pick(j.Succeeded()[0]))
		})
	}
}

// TestFirstCrashEverywhere: rows of the branches that lost the race may differ after a crash.
func TestFirstCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, race(&flow.FanOutOptions{First: true}, 3, 1), session.New(session.UserText("go")), "testdata/fan.txtar", nil)
}

// TestQuorumCrashEverywhere is TestFirstCrashEverywhere for two of three branches.
func TestQuorumCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, race(&flow.FanOutOptions{Quorum: 2}, 1, 4, 2), session.New(session.UserText("go")), "testdata/fan.txtar", nil)
}

// dropping continues with an older value, so that the first answer is lost.
func dropping() flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		one := &flow.Agent{Name: "write", Prompt: "You write."}
		if _, err := one.Forward(ctx, s); err != nil {
			return s, err
		}
		return one.Forward(ctx, s)
	})
}

// TestCrashEverywhereIsStrict: a warning fails it as it fails Run.
func TestCrashEverywhereIsStrict(t *testing.T) {
	for name, test := range map[string]func(testing.TB){
		"run": func(t testing.TB) {
			flowtest.Run(t, dropping(), session.New(session.UserText("go")), "testdata/fan.txtar", nil)
		},
		"crash": func(t testing.TB) {
			flowtest.CrashEverywhere(t, dropping, session.New(session.UserText("go")), "testdata/fan.txtar", nil)
		},
	} {
		if said := failure(t, test); !strings.Contains(said, "did you shadow s?") {
			t.Errorf("%s: a dropped result fails with %q", name, said)
		}
	}
}

// TestDifferenceIsPrintedOnce: a workflow that behaves differently after a crash fails
// the test with one difference, the line of the call and both sides.
func TestDifferenceIsPrintedOnce(t *testing.T) {
	var executions atomic.Int64 // of the function of a step: a workflow must not depend on it
	unsteady := func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			n, err := flow.Do(ctx, "count", func(context.Context) (int64, error) { return executions.Add(1), nil }, tool.ReadOnly)
			if err != nil {
				return s, err
			}
			s = s.With(session.UserText(fmt.Sprintf("execution %d", n)))
			return (&flow.Agent{Name: "write", Prompt: "You write."}).Forward(ctx, s)
		})
	}
	said := failure(t, func(t testing.TB) {
		flowtest.CrashEverywhere(t, unsteady, session.New(session.UserText("go")), "testdata/fan.txtar", nil)
	})
	for _, want := range []string{`"execution 1"`, `"execution 2"`, "without a crash: ", "after the crash: ", "other crashes change the run, too", "first_test.go:", "step 1\n"} {
		if strings.Count(said, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, said)
		}
	}
}
