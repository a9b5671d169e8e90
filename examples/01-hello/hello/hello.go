// Package hello is the first example of the ladder: one agent, asked one thing.
package hello

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/rathcluster/rath/examples/ladder"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/llm"
	"github.com/rathcluster/rath/session"
)

//go:embed model.txtar
var script []byte

// Rung is the example.
func Rung() ladder.Rung {
	return ladder.Rung{
		Dir: "01-hello", Name: "hello", Does: "An agent answers.",
		New: newHello, Input: "Say hello to the world.", Script: script,
	}
}

// newHello makes the workflow of one task. A task has an input, which is any JSON, and may
// name a model.
func newHello(s flow.Info) (flow.Workflow, error) {
	var request string
	if err := json.Unmarshal(s.Input, &request); err != nil {
		return nil, fmt.Errorf("hello: input: %w; want a text", err)
	}
	// An agent is plain data: a name, instructions, a model. It holds no connection.
	agent := &flow.Agent{
		Name: "greeter", Prompt: "You are the greeter. Answer in one line.",
		Provider: llm.Provider{Model: s.Model},
	}
	// A workflow takes a session and returns one. A session is a value: s stays as it is,
	// and s.With is another one, with a row more.
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		return agent.Forward(ctx, s.With(session.UserText(request)))
	}), nil
}
