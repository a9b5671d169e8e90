package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// WorkflowTool makes a tool of a workflow, such as an [Agent]. A model that calls it says
// what is to be done, and reads what the workflow answers: the text of its last chunk, or
// why it failed.
//
// A call is a step of the run, like every other one. The engine has the workflow run as a
// branch, on any node, with a session, a journal and a part of the budget of its own, and
// the calls of one answer run at the same time. The session begins with what the model
// asked for alone, on a copy of the files. What a workflow that succeeds makes of those is
// merged into the caller's, as [WithFiles] does with KeepBoth: the model reads which files
// were changed here as well in ways that exclude each other.
// Workflows that call each other without end fail at run.MaxDepth, as the result that the
// model reads. Without a workflow it panics, as it does with a bad name.
func WorkflowTool(name, description string, w Workflow) tool.Tool {
	if w == nil {
		panic("flow: the tool " + name + " has no workflow")
	}
	return workflowTool{w, tool.Func(name, description, func(context.Context, toolInput) (string, error) {
		return "", errors.New("flow: the tool " + name + " is a workflow: a run makes its calls, by an Agent or by CallTool")
	}, &tool.FuncOptions{Effect: tool.Idempotent})}
}

type workflowTool struct {
	w Workflow
	tool.Tool
}

// toolInput is what a model gives to a workflow.
type toolInput struct {
	Input string `json:"input" jsonschema:"what is to be done, with all that has to be known: nothing else of this conversation is seen"`
}

// Work returns the workflow that does what a call asks for. The engine calls it.
func (t workflowTool) Work(args json.RawMessage) Workflow {
	return Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var in toolInput
		if err := json.Unmarshal(args, &in); err != nil {
			return s, fmt.Errorf("flow: arguments of %s: %w", t.Spec().Name, err)
		}
		return t.w.Forward(ctx, s.With(session.UserText(in.Input)))
	})
}
