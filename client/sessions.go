package client

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Sessions reads, continues and imports the sessions of the tenant.
type Sessions struct{ c *Client }

// Get returns a session with all its chunks. ref is an id or a name, with ":version"
// for an older version. It returns session.ErrNotFound if there is no such session or
// version.
func (ss *Sessions) Get(ctx context.Context, ref string) (messages.Session, error) {
	return ss.After(ctx, ref, 0)
}

// After is Get without the chunks before an index.
func (ss *Sessions) After(ctx context.Context, ref string, index uint64) (messages.Session, error) {
	q := wire.Query{Session: ref, After: index, Limit: wire.MaxLimit}
	var out messages.Session
	for first := true; ; first = false {
		page, err := query[messages.Session](ctx, ss.c, messages.QuerySession, q)
		if err != nil {
			return out, err
		}
		if first {
			out = page
			// The following pages are of the same version.
			q.Session = string(page.Session) + ":" + strconv.FormatUint(uint64(page.Version), 10)
		} else {
			out.Chunks = append(out.Chunks, page.Chunks...)
		}
		if q.After = page.Next; page.Next == 0 {
			out.Next = 0
			return out, nil
		}
	}
}

// Roots returns the oldest session of each tree, the newest trees first; at most limit
// of them, 0 for all.
func (ss *Sessions) Roots(ctx context.Context, limit int) ([]session.ID, error) {
	var out []session.ID
	for q := (wire.Query{}); ; {
		page, err := query[messages.Graph](ctx, ss.c, messages.QueryGraph, q)
		if err != nil {
			return out, err
		}
		out = append(out, page.Roots...)
		if limit > 0 && len(out) >= limit {
			return out[:limit], nil
		}
		if q.After = page.Next; page.Next == 0 {
			return out, nil
		}
	}
}

// Commits returns a page of the stored log of a session of the client's tenant, after a
// position: nil for its beginning. The hash of a commit is that of its bytes. It
// returns session.ErrNotFound if the session does not exist.
func (ss *Sessions) Commits(ctx context.Context, id session.ID, at *messages.CommitPosition) (messages.Commits, error) {
	return ss.c.requests.Commits(ctx, session.Key{Tenant: ss.c.tenant, ID: id}, at)
}

// Message sends m.Text to a session, by id or name: to the run that holds it or, if
// there is none, as the session's next user chunk.
func (ss *Sessions) Message(ctx context.Context, name string, m messages.Control) error {
	if err := session.ValidID("session", name); err != nil {
		return err
	}
	// The subject of a session is a run's subject with "session" before the id.
	if _, err := ss.c.requests.Control(ctx, ss.c.tenant, run.ID("session."+name), messages.VerbMessage, m); err != nil {
		return fmt.Errorf("message to session %s: %w", name, err)
	}
	return nil
}

// Rewind submits a task on a new session that starts at an earlier version of a
// session, with its files, and returns the run's id. ref is "session:version" by id or
// name. The later versions of the session are kept.
//
// It returns run.ErrState for a session that an open run holds: cancel the run first.
// It returns session.ErrNotFound, which names the newest version, for a version that
// does not exist.
func (ss *Sessions) Rewind(ctx context.Context, ref, workflow string, t messages.Task) (run.ID, error) {
	r, err := session.ParseRef(ss.c.tenant, ref)
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
	s, err := query[messages.Session](ctx, ss.c, messages.QuerySession, wire.Query{Session: string(r.ID), Limit: 1})
	if err != nil {
		return "", fmt.Errorf("rewind %s: %w", ref, err)
	}
	if r.Version > s.Version {
		return "", fmt.Errorf("rewind %s: session %s ends at version %d: %w; choose 1 to %d", ref, s.Session, s.Version, session.ErrNotFound, s.Version)
	}
	open, err := ss.c.Runs.List(ctx, &RunsOptions{States: []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}})
	if err != nil {
		return "", fmt.Errorf("rewind %s: %w", ref, err)
	}
	for _, o := range open {
		if o.Session == s.Session || slices.Contains(o.Sessions, s.Session) {
			return "", fmt.Errorf("rewind %s: run %s works on the session (%s): %w; cancel it first", ref, o.Run, o.State, run.ErrState)
		}
	}
	t.ForkOf = session.Ref{Key: session.Key{Tenant: ss.c.tenant, ID: s.Session}, Version: r.Version}.String()
	id, err := ss.c.Submit(ctx, workflow, t)
	if err != nil {
		return "", fmt.Errorf("rewind %s: %w", ref, err)
	}
	return id, nil
}

// Import makes a node import the sessions of a file into the tenant: the sessions of an
// archive that a prune has written, under their own ids, or the session of an OpenRath
// session file. Existing sessions are kept, so an interrupted import can be repeated.
// It requires the role operate. A file of more than 32 MiB is session.ErrTooLarge. It
// returns the imported sessions, a row each.
func (ss *Sessions) Import(ctx context.Context, file []byte) ([]messages.Imported, error) {
	rows, err := ss.c.requests.Import(ctx, ss.c.tenant, file)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	return rows, nil
}
