package flowtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/internal/platform/scratch"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

func TestMain(m *testing.M) {
	scratch.InMemory()
	// Tests wait for the processes of sandboxes more than they compute.
	if err := flag.Set("test.parallel", "4"); err != nil { // a flag of the command line comes later
		panic(err)
	}
	flowtest.Main(m)
}

type fix struct{ code, verify *flow.Agent }

func (w *fix) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	for n := range 2 {
		try, err := flow.Fork(ctx, s)
		if err != nil {
			return s, err
		}
		if n == 1 {
			if _, err := flow.Remember(ctx, "m", "lessons", "check empty input"); err != nil {
				return s, err
			}
			try = try.With(session.UserText("mind empty input"))
		}
		if try, err = w.code.Forward(ctx, try); err != nil {
			return s, err
		}
		if try, err = w.verify.Forward(ctx, try); err != nil {
			return s, err
		}
		if try.Text() == "accept" {
			return flow.Adopt(ctx, s, try, fmt.Sprintf("attempt %d passes", n+1))
		}
		if err := flow.Reject(ctx, try, try.Text()); err != nil {
			return s, err
		}
	}
	return s, errors.New("fix: no attempt passed")
}

func newFix() flow.Workflow {
	return &fix{
		code:   &flow.Agent{Name: "coder", Prompt: "You are the coder.", Tools: tool.Builtins(), Memory: "m"},
		verify: &flow.Agent{Name: "verifier", Prompt: "You are the verifier."},
	}
}

func TestRun(t *testing.T) {
	s := flowtest.Run(t, newFix(), session.New(session.UserText("fix it")), "testdata/fix.txtar", nil)
	if s.Text() != "accept" {
		t.Errorf("it said %q", s.Text())
	}
}

func TestCrashEverywhere(t *testing.T) {
	t.Parallel()
	flowtest.CrashEverywhere(t, newFix, session.New(session.UserText("fix it")), "testdata/fix.txtar", nil)
}
