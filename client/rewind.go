package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Rewind submits a task on a new session that starts at an earlier version of a
// session, with its files, and returns the run's id. ref is "session:version" by id or
// name. The later versions of the session are kept.
//
// It returns run.ErrState for a session that an open run holds: cancel the run first.
// It returns session.ErrNotFound, which names the newest version, for a version that
// does not exist.
func (c *Client) Rewind(ctx context.Context, ref, workflow string, t messages.Task) (run.ID, error) {
	r, err := session.ParseRef(c.tenant, ref)
	if err != nil {
		return "", fmt.Errorf("rewind: %w", err)
	}
	switch {
	case r.Version == 0:
		return "", fmt.Errorf("rewind %s: to which version? name it as %s:3: %w", ref, r.ID, run.ErrMalformed)
	case t.Session != "" || t.ForkOf != "":
		return "", fmt.Errorf("rewind %s: the task names a session itself: %w; leave that out", ref, run.ErrMalformed)
	}
	// One page has the length of the session.
	s, err := query[messages.Session](ctx, c, messages.QuerySession, wire.Query{Session: string(r.ID), Limit: 1})
	if err != nil {
		return "", fmt.Errorf("rewind %s: %w", ref, err)
	}
	if r.Version > s.Version {
		return "", fmt.Errorf("rewind %s: session %s ends at version %d: %w; choose 1 to %d", ref, s.Session, s.Version, session.ErrNotFound, s.Version)
	}
	open, err := c.Runs(ctx, &RunsOptions{States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}})
	if err != nil {
		return "", fmt.Errorf("rewind %s: %w", ref, err)
	}
	for _, o := range open {
		if o.Session == s.Session || slices.Contains(o.Sessions, s.Session) {
			return "", fmt.Errorf("rewind %s: run %s works on the session (%s): %w; cancel it first", ref, o.Run, o.State, run.ErrState)
		}
	}
	t.ForkOf = session.Ref{Key: session.Key{Tenant: c.tenant, ID: s.Session}, Version: r.Version}.String()
	id, err := c.Submit(ctx, workflow, t)
	if err != nil {
		return "", fmt.Errorf("rewind %s: %w", ref, err)
	}
	return id, nil
}

// Rerun submits the task of a run again, as a separate run on a session that starts
// like the first one, and returns its id: "<id>-r1", "-r2" and so on. The run may have
// any outcome. A branch of a fan-out cannot be rerun alone.
func (c *Client) Rerun(ctx context.Context, id run.ID) (run.ID, error) {
	if err := session.ValidID("run", string(id)); err != nil {
		return "", err
	}
	note, err := c.requests.Control(ctx, c.tenant, id, messages.VerbRerun, messages.Control{})
	if err != nil {
		return "", fmt.Errorf("rerun run %s: %w", id, err)
	}
	c.remember(run.ID(note))
	return run.ID(note), nil
}

// Replay runs the code of a run's workflow against the run's record, on a node that
// offers the workflow, with models and tools switched off, and reports the differences.
// run.ErrNotSupported means that no node offers the workflow.
func (c *Client) Replay(ctx context.Context, id run.ID) (messages.Replay, error) {
	r, err := query[messages.Replay](ctx, c, messages.QueryReplay, wire.Query{Run: id})
	if err != nil {
		return r, fmt.Errorf("replay run %s: %w", id, err)
	}
	return r, nil
}
