// Package toolserver serves tools of a program, written in Go with package tool, to agents on
// nodes.
package toolserver

import (
	"context"
	"fmt"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/tool"
)

// Serve offers a tool of this program to the agents of a client's tenant, and answers
// their calls until ctx ends, see [client.Tools.Serve]. tool.Current has the ID
// and the attempt of a call. A call may take as long as the timeout; 0 is a minute.
//
//	err := toolserver.Serve(ctx, c, tool.Func("weather", "Current weather of a city.", weather,
//		&tool.FuncOptions{Effect: tool.ReadOnly}), 0)
func Serve(ctx context.Context, c *client.Client, t tool.Tool, timeout time.Duration) error {
	table, err := tool.NewTable(t)
	if err != nil {
		return err
	}
	spec := t.Spec()
	if spec.Retry != nil {
		return fmt.Errorf("tool %s has a retry policy, and nodes do not try a call of another program again: try again in the tool itself", spec.Name)
	}
	effect, err := spec.Effect.MarshalText()
	if err != nil {
		return err
	}
	v := messages.Tool{Name: spec.Name, Description: spec.Description, Input: spec.Schema, Effect: string(effect), TimeoutMS: timeout.Milliseconds()}
	return c.Tools.Serve(ctx, v, func(ctx context.Context, call messages.ToolCall) messages.ToolAnswer {
		out := table.Call(ctx, spec.Name, string(call.Args), tool.Call{ID: call.ID, Attempt: call.Attempt})
		return messages.ToolAnswer{Body: out.Body, IsError: out.IsError}
	})
}
