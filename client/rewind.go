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

// Rewind goes back: it submits a task on a new session that starts as a session
// was at an earlier version, with its files, and returns the run's id. ref is
// "session:version" by id or name. What came after that version stays as it is.
//
// A session that an open run holds is refused with run.ErrState: cancel the run
// first. A version that there is not is session.ErrNotFound, which names the
// newest one.
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
	// One page is enough to know how long the session is.
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

// Rerun submits the task of a run once more, as a run of its own on a session
// that starts as the first one did, and returns its id: "<id>-r1", "-r2" and so
// on. The run may have ended in any way; a branch of a fan-out cannot be rerun
// by itself.
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

// Replay runs the code of a run's workflow against what the run recorded, on a
// node that offers it, with models and tools switched off, and says where they
// differ. run.ErrNotSupported means that no node offers the workflow.
func (c *Client) Replay(ctx context.Context, id run.ID) (messages.Replay, error) {
	r, err := query[messages.Replay](ctx, c, messages.QueryReplay, wire.Query{Run: id})
	if err != nil {
		return r, fmt.Errorf("replay run %s: %w", id, err)
	}
	return r, nil
}
