package flowtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestSelectInBranchCrashEverywhere: branches choose and gather, after a Gather and a
// Select of the code around them.
func TestSelectInBranchCrashEverywhere(t *testing.T) {
	t.Parallel()
	choose := func(ctx context.Context, s session.Session) (session.Session, error) {
		approved := flow.OnApproval("deploy", nil)
		first, err := flow.Select(ctx, flow.OnTimer(time.Hour), approved)
		if err != nil {
			return s, err
		}
		var did [2]string
		err = flow.Gather(ctx, nil,
			func(ctx context.Context) (err error) {
				did[0], err = flow.Do(ctx, "a", func(context.Context) (string, error) { return "a", nil }, tool.Idempotent)
				return err
			},
			func(ctx context.Context) (err error) {
				did[1], err = flow.Await[string](ctx, "colour", nil)
				return err
			})
		return says(s, "%t %s %s", first == approved, did[0], did[1]), err
	}
	w := flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		s, err := choose(ctx, s)
		if err != nil {
			return s, err
		}
		j, err := flow.FanOut(ctx, s, flow.Repeat(2, flow.Func(choose)), nil)
		if err != nil {
			return s, err
		}
		return flow.Merge(ctx, j, flow.SinceAncestor())
	})
	flowtest.CrashEverywhere(t, func() flow.Workflow { return w }, session.New(session.UserText("go")), "testdata/none.txtar", &flowtest.Options{
		Answer: func(q run.Question) (any, error) {
			if q.Kind == run.WaitApproval {
				return flow.Approval{Approved: true, By: "ann"}, nil
			}
			return "blue", nil
		},
	})
}
