package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The built-in workflows that do something with sessions.
const (
	WorkflowFork  = "fork"
	WorkflowMerge = "merge"
)

// forkRegistration offers the workflow that does nothing: with fork_of it makes
// a branch.
func forkRegistration() flow.Registration {
	return flow.Registration{
		Name: WorkflowFork, Revision: "1", Description: "Does nothing: with fork_of it makes a branch of a session.",
		New: func() flow.Workflow { return flow.EmptyWorkflow{} },
	}
}

// MergeInput is the input of the built-in workflow "merge", which joins
// sessions into a new one: their chunks one after the other, with the files of
// the first. They stay as they are.
type MergeInput struct {
	// Sessions are ids, with ":version" for an older version than the newest.
	Sessions []string `json:"sessions"`
}

// maxMerge is how many sessions one task merges.
const maxMerge = 64

const mergeSchema = `{"type":"object","required":["sessions"],"additionalProperties":false,"properties":{` +
	`"sessions":{"type":"array","minItems":2,"maxItems":64,"items":{"type":"string"}}}}`

// Check says what is wrong with the input.
func (in MergeInput) Check() error {
	if n := len(in.Sessions); n < 2 || n > maxMerge {
		return &messages.FieldError{Message: "merge", Problem: fmt.Sprintf("%d sessions are named", n), Remedy: fmt.Sprintf("name 2 to %d", maxMerge)}
	}
	seen := map[session.ID]bool{}
	for _, name := range in.Sessions {
		ref, err := session.ParseRef(session.DefaultTenant, name)
		if err != nil {
			return fmt.Errorf("merge: %q names no session of the task's tenant: %w: %w", name, run.ErrMalformed, err)
		}
		if seen[ref.ID] {
			return &messages.FieldError{
				Message: "merge", Problem: fmt.Sprintf("session %s is named twice", ref.ID),
				Remedy: "a session cannot be merged with itself, fork it if you mean that",
			}
		}
		seen[ref.ID] = true
	}
	return nil
}

// mergeRegistration offers the workflow that joins sessions.
func mergeRegistration() flow.Registration {
	return flow.Registration{
		Name: WorkflowMerge, Revision: "1", Input: json.RawMessage(mergeSchema),
		Description: "Joins sessions into a new one: their chunks one after the other, the files of the first.",
		NewFor: func(s flow.Settings) (flow.Workflow, error) {
			var in MergeInput
			dec := json.NewDecoder(strings.NewReader(string(s.Input)))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&in); err != nil {
				return nil, fmt.Errorf(`merge: input: %w; send {"sessions":["a","b"]}`, err)
			}
			if err := in.Check(); err != nil {
				return nil, err
			}
			return flow.Func(in.forward), nil
		},
	}
}

func (in MergeInput) forward(ctx context.Context, s session.Session) (session.Session, error) {
	if s.Len() > 0 {
		return s, errors.New("merge: the task goes on with a session that has chunks: leave session and fork_of out, the merge makes a new one")
	}
	var all session.Session
	for i, name := range in.Sessions {
		ref, err := session.ParseRef(s.Key().Tenant, name)
		if err != nil {
			return s, err
		}
		one, err := flow.Read(ctx, ref)
		if err != nil {
			return s, fmt.Errorf("merge: %w", err)
		}
		if i == 0 {
			all = one
			continue
		}
		if all, err = flow.Concatenate(ctx, all, one); err != nil {
			return s, fmt.Errorf("merge: %w", err)
		}
	}
	return all, nil
}
