package flowtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/flow/flowtest"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// TestIDsCrashEverywhere: ids that are drawn inside of steps, in Do, in a tool and in a
// hook, do not change those between the steps, on any execution; and the ids that a step
// recorded are replayed.
func TestIDsCrashEverywhere(t *testing.T) {
	newWorkflow := func() flow.Workflow {
		return flow.Func(func(outer context.Context, s session.Session) (session.Session, error) {
			agent := &flow.Agent{
				Name: "clerk", Prompt: "You file.",
				Tools: []tool.Tool{tool.Func("ticket", "Opens a ticket.", func(ctx context.Context, _ struct{}) (string, error) {
					flow.NewID(outer)
					return flow.NewID(ctx), nil
				}, &tool.FuncOptions{Effect: tool.Idempotent})},
				Approve: func(tool.Spec, json.RawMessage) bool { return flow.NewID(outer) == "" },
			}
			for i := range 2 {
				id, err := flow.Do(outer, "open", func(ctx context.Context) (string, error) {
					flow.NewID(outer)
					return flow.NewID(ctx), nil
				}, tool.Idempotent)
				if err != nil {
					return s, err
				}
				s = s.With(session.UserText(fmt.Sprintf("case %s of batch %s", id, flow.NewID(outer))))
				if s, err = agent.Forward(outer, s); err != nil {
					return s, err
				}
				if _, err := flow.Do(outer, fmt.Sprint("close ", i, " ", flow.NewID(outer)), func(ctx context.Context) (int, error) {
					return len(flow.NewID(ctx)), nil
				}, tool.Idempotent); err != nil {
					return s, err
				}
			}
			return s, nil
		})
	}
	flowtest.CrashEverywhere(t, newWorkflow, session.New(session.UserText("file it")), "testdata/ids.txtar", nil)
}
