package flow

import (
	"context"
	"encoding/json"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Hooks are functions that an [Agent] calls during its work, to observe, change or reject
// it. Their decisions are recorded before they apply, and later executions use the
// record. A nil hook is not called. A hook that a crash cuts off is called again, so it
// must be idempotent. A hook makes no steps.
type Hooks struct {
	// BeforeModel is called before each model call. An error ends the agent.
	BeforeModel func(ctx context.Context, s session.Session) error
	// AfterModel is called with the session once it holds an answer, before the tool
	// calls of the answer run. An error ends the agent.
	AfterModel func(ctx context.Context, s session.Session) error
	// BeforeTool is called for each call of an existing tool, in call order, before
	// approval is requested and before any call runs. If the approver changes the
	// arguments, it is called again with the new ones. It returns arguments that replace
	// these without another approval, or nil. With an error the call does not run, and
	// the model gets the error as its result.
	BeforeTool func(ctx context.Context, spec tool.Spec, args json.RawMessage) (json.RawMessage, error)
	// AfterTool is called with the result of a call and returns the result for the model.
	// With an error the model gets the error instead. Calls run concurrently, and so does
	// AfterTool.
	AfterTool func(ctx context.Context, spec tool.Spec, args json.RawMessage, r tool.Result) (tool.Result, error)
	// Partial is called while a model answers, with the text of the answer so far; in
	// [Ask] with the JSON object so far, closed at its current end, whenever that has
	// grown. "" means that the answer broke off, and another one may follow. Partial only
	// observes: its calls are not recorded, a recorded answer is not passed to it, and
	// the stream waits until it returns.
	Partial func(text string)
	// End is called when the agent has finished. With an error the agent continues: the
	// model gets the text of the error.
	End func(ctx context.Context, s session.Session) error
}
