package flow

import (
	"context"
	"encoding/json"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Hooks are functions that an [Agent] calls around its work, to look at it, to change it
// and to refuse it. What they decide is recorded before it holds, and later executions take
// it from the record. A nil one is not called. A hook that a crash cuts off is called again,
// so it must not do what may not happen twice; it makes no steps.
type Hooks struct {
	// BeforeModel is called before each model call. An error ends the agent.
	BeforeModel func(ctx context.Context, s session.Session) error
	// AfterModel is called with the session once it holds an answer, before the tools that
	// this calls run. An error ends the agent.
	AfterModel func(ctx context.Context, s session.Session) error
	// BeforeTool is called for each call of a tool that exists, in their order, before a
	// person is asked and before any of them runs, and again with the arguments that a person
	// put in their place. It returns the arguments that take the place of those, which no
	// person is asked about again, or nil. With an error the call does not run, and the model
	// reads why as its result.
	BeforeTool func(ctx context.Context, spec tool.Spec, args json.RawMessage) (json.RawMessage, error)
	// AfterTool is called with what a call came to, and returns what the model reads. With an
	// error it reads that instead. Calls run at the same time, and so does this.
	AfterTool func(ctx context.Context, spec tool.Spec, args json.RawMessage, r tool.Result) (tool.Result, error)
	// Partial is called while a model answers, with the text of the answer so far; in [Ask]
	// with what is there of the JSON object, closed where it stands, whenever that has grown.
	// "" says that the answer broke off, and another one may follow. It looks on and no more:
	// nothing of it is recorded, an answer that is recorded comes without it, and the stream
	// waits until it returns.
	Partial func(text string)
	// End is called when the agent is done. With an error it is not: the model reads the text
	// of the error and goes on.
	End func(ctx context.Context, s session.Session) error
}
