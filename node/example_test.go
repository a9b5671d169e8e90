package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// A program of your own offers a workflow on a node with an embedded server, and any
// client submits tasks to it. Main does the same with flags and signals.
func ExampleStart() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "rath")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	n, err := node.Start(ctx, &node.Options{Store: dir, NATS: node.NATS{Port: -1}, Workflows: []flow.Registration{{
		Name: "greet", Revision: "1", Description: "Greets who is named.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			var name string
			if err := json.Unmarshal(s.Input, &name); err != nil {
				return nil, fmt.Errorf("greet: the input is no name: %w", err)
			}
			return flow.Func(func(_ context.Context, v session.Session) (session.Session, error) {
				return v.With(session.AssistantText("Hello " + name + ".")), nil
			}), nil
		},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer n.Close()

	c, err := client.Connect(ctx, n.URL(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	result, err := c.Do(ctx, "greet", messages.Task{Input: json.RawMessage(`"Ana"`)}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.State, result.Output)
	// Output:
	// succeeded Hello Ana.
}
