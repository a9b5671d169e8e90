package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
)

// The built-in workflows on sessions.
const (
	WorkflowFork  = "fork"
	WorkflowMerge = "merge"
)

// forkRegistration offers the workflow that returns its session unchanged: with fork_of
// it makes a branch.
func forkRegistration() flow.Registration {
	return flow.Registration{
		Name: WorkflowFork, Revision: "1", Description: "Makes no step: with fork_of it forks a session.",
		New: func() flow.Workflow { return flow.EmptyWorkflow{} },
	}
}

const mergeSchema = `{"type":"object","required":["sessions"],"additionalProperties":false,"properties":{` +
	`"sessions":{"type":"array","minItems":2,"maxItems":64,"items":{"type":"string"}}}}`

// mergeRegistration offers the workflow that joins sessions.
func mergeRegistration() flow.Registration {
	return flow.Registration{
		Name: WorkflowMerge, Revision: "1", Input: json.RawMessage(mergeSchema),
		Description: "Joins sessions into a new one: their chunks one after the other, the files of the first.",
		NewFor: func(s flow.Info) (flow.Workflow, error) {
			var in wire.MergeInput
			dec := json.NewDecoder(strings.NewReader(string(s.Input)))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&in); err != nil {
				return nil, fmt.Errorf(`merge: input: %w; send {"sessions":["a","b"]}`, err)
			}
			if err := in.Check(); err != nil {
				return nil, err
			}
			return merge(in.Sessions), nil
		},
	}
}

// merge joins sessions, by their names.
type merge []string

// Forward implements flow.Workflow.
func (names merge) Forward(ctx context.Context, s session.Session) (session.Session, error) {
	if s.Len() > 0 {
		return s, errors.New("merge: the session of the task has chunks: omit session and fork_of, the merge creates a new one")
	}
	var all session.Session
	for i, name := range names {
		ref, err := session.ParseRef(s.Key().Tenant, name)
		if err != nil {
			return s, err
		}
		one, err := flow.ReadSession(ctx, ref)
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
