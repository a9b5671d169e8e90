package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// WorkflowTool returns a tool that runs a workflow, such as an [Agent]. A model that
// calls it describes the task, and gets the workflow's answer: the text of its last
// chunk, or the reason for its failure.
//
// Each call is a step of the run. The engine runs the workflow as a branch, on any node,
// with its own session, journal and part of the budget. The calls of one answer run
// concurrently. The session begins with the model's task alone, on a copy of the files.
// If the workflow succeeds, its changes to the files are merged into the caller's, as
// [WithFiles] does with KeepBoth, and the model gets the list of conflicting files.
// Workflows that call each other without end fail at run.MaxDepth, and the model gets
// that error as its result. WorkflowTool panics if w is nil or the name is invalid.
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

// toolInput is a model's input to a workflow.
type toolInput struct {
	Input string `json:"input" jsonschema:"what is to be done, with all that has to be known: nothing else of this conversation is seen"`
}

// Work returns a workflow that executes a call with these arguments. The engine calls it.
func (t workflowTool) Work(args json.RawMessage) Workflow {
	return Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		var in toolInput
		if err := json.Unmarshal(args, &in); err != nil {
			return s, fmt.Errorf("flow: arguments of %s: %w", t.Spec().Name, err)
		}
		return t.w.Forward(ctx, s.With(session.UserText(in.Input)))
	})
}
