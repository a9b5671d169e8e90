package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/core/strict"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// submission is the body of a submission: a task without its id, which the address has,
// and the workflow that executes it.
type submission struct {
	Workflow string `json:"workflow"`
	messages.Task
}

// rewinding is the body of a rewind: the version to start at, and the task.
type rewinding struct {
	// Version is the version of the run's session at which the new run starts.
	Version session.Version `json:"version"`
	submission
}

// complete checks a submission, which a narrow token may not direct at what it does not see.
func (s *submission) complete(ctx context.Context, c *call) error {
	if s.Workflow == "" {
		return &strict.Error{Message: "submission", Field: "workflow", Problem: "it is missing", Remedy: "name one of GET " + prefix + "/workflows"}
	}
	if err := session.ValidID("workflow", s.Workflow); err != nil {
		return &strict.Error{Message: "submission", Field: "workflow", Problem: messages.Text(err), Remedy: "name one of GET " + prefix + "/workflows"}
	}
	if err := s.Check(); err != nil {
		return err
	}
	if !c.caller.Narrow() {
		return nil
	}
	if !slices.Contains(c.caller.Only, s.Workflow) {
		return fmt.Errorf("workflow %s: %w", s.Workflow, session.ErrNotFound)
	}
	if s.Workspace != "" {
		return fmt.Errorf("workspace %s: %w", s.Workspace, session.ErrNotFound)
	}
	for _, name := range []string{s.Session, s.ForkOf} {
		if name == "" {
			continue
		}
		r, err := session.ParseRef(c.caller.Tenant, name)
		if err == nil {
			err = c.seesSession(ctx, string(r.ID))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// submit submits a run. The answer to a repetition is the same.
func submit(ctx context.Context, c *call) (any, error) {
	var s submission
	if err := c.decode("submission", &s); err != nil {
		return nil, err
	}
	if s.ID != "" && s.ID != c.run() {
		return nil, &strict.Error{Message: "submission", Field: "id", Problem: "it is not the id of the address", Remedy: "leave it out"}
	}
	s.ID = c.run()
	if err := s.complete(ctx, c); err != nil {
		return nil, err
	}
	id, err := c.client().Submit(ctx, s.Workflow, s.Task)
	c.w.Header().Set("Location", prefix+"/runs/"+string(id))
	return named{id}, err
}

// rewind submits a task on a new session that starts at an earlier version of a run's.
func rewind(ctx context.Context, c *call) (any, error) {
	var s rewinding
	if err := c.decode("rewind", &s); err != nil {
		return nil, err
	}
	if s.ID == "" {
		s.ID = client.NewID()
	}
	if s.Version == 0 {
		return nil, &strict.Error{Message: "rewind", Field: "version", Problem: "it is missing", Remedy: "send the version of the session to start at, from 1"}
	}
	if err := s.complete(ctx, c); err != nil {
		return nil, err
	}
	r, err := c.client().Runs.Get(ctx, c.run())
	if err != nil {
		return nil, err
	}
	of := r.Session
	if r.Result != nil {
		of = r.Result.Session
	}
	id, err := c.client().Sessions.Rewind(ctx, fmt.Sprintf("%s:%d", of, s.Version), s.Workflow, s.Task)
	return named{id}, err
}
