package flowtest_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// counter is a witness outside of the workspace: it sees every execution.
type counter struct {
	mu   sync.Mutex
	seen map[string]int // call id and attempt
}

func (c *counter) tool(effect tool.Effect) tool.Tool {
	return tool.Func("count", "Counts.", func(ctx context.Context, in struct {
		N int `json:"n"`
	},
	) (int, error) {
		call, ok := tool.Current(ctx)
		if !ok {
			return 0, fmt.Errorf("count: not called as a tool")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.seen == nil {
			c.seen = map[string]int{}
		}
		c.seen[fmt.Sprint(call.ID, " ", call.Attempt)]++
		return in.N, nil
	}, &tool.FuncOptions{Effect: effect})
}

func TestTwentyTools(t *testing.T) {
	t.Parallel()
	// Each execution of the test's worlds has a counter of its own.
	var counters []*counter
	workflow := func(effect tool.Effect) func() flow.Workflow {
		return func() flow.Workflow {
			c := &counter{}
			counters = append(counters, c)
			return &flow.Agent{Name: "worker", Prompt: "You work.", Tools: append(tool.Builtins(), c.tool(effect))}
		}
	}
	for _, test := range []struct {
		effect  tool.Effect
		script  string
		resolve string
	}{
		{tool.Idempotent, "testdata/twenty.txtar", ""},
		{tool.NonIdempotent, "testdata/pay.txtar", run.Again},
	} {
		t.Run(test.effect.String(), func(t *testing.T) {
			counters = nil
			flowtest.CrashEverywhere(t, workflow(test.effect), session.New(session.UserText("go")), test.script,
				&flowtest.Options{Resolve: test.resolve})
			for _, c := range counters {
				for call, n := range c.seen {
					if n > 1 {
						t.Errorf("call %s was executed %d times", call, n)
					}
				}
			}
		})
	}
}
