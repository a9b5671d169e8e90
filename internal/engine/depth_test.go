package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// nested fans out to itself depth times; a negative depth is endless.
func nested(depth int, begun *atomic.Int32) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		begun.Add(1)
		if depth == 0 {
			return s, nil
		}
		j, err := flow.FanOut(ctx, s, []flow.Branch{{Name: "in", Workflow: nested(depth-1, begun)}}, nil)
		if err != nil {
			return s, err
		}
		if o := j.Outcomes[0]; o.Err != nil {
			return s, o.Err
		}
		return flow.Merge(ctx, j, flow.Pick(0))
	})
}

// TestEndlessSubmission: workflows that submit each other without end are rejected at a
// depth, which the error names.
func TestEndlessSubmission(t *testing.T) {
	var begun atomic.Int32
	remote := func(name string) flow.Registration {
		return flow.Registration{Name: name, New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
				begun.Add(1)
				return flow.Remote{Workflow: map[string]string{"self": "self", "ping": "pong", "pong": "ping"}[name]}.Forward(ctx, s)
			})
		}}
	}
	for _, tt := range []struct {
		name string
		w    flow.Workflow
		text string // "" succeeds
	}{
		{"itself", flow.Remote{Workflow: "self"}, "self -> self -> self"},
		{"each other", flow.Remote{Workflow: "ping"}, "ping -> pong -> ping"},
		{"nested without end", nested(-1, &begun), "run -> run -> run"},
		{"as deep as may be", nested(run.MaxDepth, &begun), ""},
		{"one too deep", nested(run.MaxDepth+1, &begun), "at most 32"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun.Store(0)
				rt := &inprocess.Runtime{Runtime: engine.Runtime{Workflows: &engine.Registry{}}}
				for _, name := range []string{"self", "ping", "pong"} {
					check(t, rt.Runtime.Workflows.Register(remote(name)))
				}
				_, err := rt.Run(t.Context(), tt.w, session.New(session.UserText("go")))
				switch {
				case tt.text == "" && err == nil:
				case tt.text == "", !errors.Is(err, run.ErrTooDeep), !strings.Contains(err.Error(), tt.text), !strings.Contains(err.Error(), "loop"):
					t.Errorf("it ended with %v, want %q", err, tt.text)
				}
			})
		})
	}
}
