package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/core/protection"
	"github.com/rathcluster/rath/internal/files/manifest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/workspace"
)

// Enqueue records a task in its session's log without claiming it, for a node that offers
// its workflow. With cancel, that ends the run at once. A task that a log holds already
// stays unchanged.
func (rt *Runtime) Enqueue(ctx context.Context, t journal.Task, cancel *journal.CancelRequested) error {
	rt.init()
	c, _, err := rt.claimOf(ctx, flow.Registration{}, t, nil)
	if err != nil {
		return err
	}
	c.Enqueue, c.Cancel = true, cancel
	_, err = rt.Store.Claim(ctx, c)
	return err
}

// claimOf returns the claim of a task, with the opening of its session and the session's
// first events, and the records of the runs that it resumes.
func (rt *Runtime) claimOf(ctx context.Context, g flow.Registration, t journal.Task, opening []session.Event) (c journal.Claim, resumed []journal.Resumed, err error) {
	if err := t.Valid(); err != nil {
		return c, nil, err
	}
	c = journal.Claim{
		Session: t.Session, Home: t.Session, Run: t.ID, Revision: g.Revision, Seen: t.Seen,
		Open: session.Opening{Kind: session.OpenLeaf, Run: string(t.ID)}, Events: slices.Clip(opening),
	}
	if !t.Resume {
		c.Task = &t
	}
	if t.Suspect != nil {
		c.Group, c.Death = t.Suspect.Group, t.Suspect.Death
	}
	var at session.Placement // of the session that the task makes
	if t.ForkOf != nil {
		base, err := rt.Values.At(ctx, *t.ForkOf)
		if err != nil {
			return c, nil, err
		}
		l, ok := base.Link()
		if !ok || base.Key().Tenant != t.Session.Tenant {
			return c, nil, fmt.Errorf("flow: fork of %s: %w", t.ForkOf, session.ErrTenant)
		}
		if err := rt.Values.Archived(ctx, base.Key()); err != nil {
			return c, nil, fmt.Errorf("flow: fork of %s: %w", t.ForkOf, err)
		}
		c.Open = session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}, Run: string(t.ID)}
		c.Root, at = base.Root(), base.Placement()
	}
	if t.Resumes != nil && !t.Resume {
		if resumed, err = rt.Values.Resumed(ctx, t.Session.Tenant, t.Resumes); err == nil {
			err = rt.Values.Archived(ctx, resumed[0].At.Key())
		}
		if err != nil {
			return c, nil, fmt.Errorf("flow: task %s resumes run %s: %w", t.ID, t.Resumes.Run, err)
		}
		base := resumed[0].At // the fold committed it
		l, _ := base.Link()
		c.Open = session.Opening{Kind: session.OpenFork, Parents: []session.Link{l}, Run: string(t.ID)}
		c.Root, at = base.Root(), base.Placement()
	}
	if b := t.Branch; b != nil {
		c.Open = session.Opening{
			Kind: session.OpenFork, Name: b.Name, Parents: []session.Link{b.Base}, Run: string(b.Ancestors[len(b.Ancestors)-1].Run), Step: string(b.Path),
		}
		if b.Call != "" {
			c.Open.Kind = session.OpenCall
		}
		c.Root = b.Root
	}
	if !t.Workspace.IsZero() && !t.Resume {
		// The task can name any stored bytes that parse as a manifest, including those
		// that a command wrote.
		err := workspace.Check(ctx, rt.Blobs(t.Session.Tenant), t.Workspace, rt.Workspaces.Limits)
		limit, tooLarge := errors.AsType[*workspace.LimitError](err)
		switch {
		case tooLarge:
			return c, nil, run.CodeTooLarge.Err(fmt.Sprintf("flow: workspace %s of task %s: %s", t.Workspace.Short(), t.ID, limit))
		case errors.Is(err, blob.ErrNotFound), errors.Is(err, blob.ErrCorrupt), errors.Is(err, manifest.ErrMalformed):
			return c, nil, fmt.Errorf("flow: workspace %s of task %s is not stored here, upload it first: %w: %w", t.Workspace.Short(), t.ID, session.ErrNotFound, err)
		case err != nil: // it may exist
			return c, nil, fmt.Errorf("flow: look at workspace %s of task %s: %w", t.Workspace.Short(), t.ID, err)
		}
	}
	if p := t.Place(at); p != at && !t.Resume {
		c.Events = append(c.Events, session.PlacedEvent(p))
	}
	return c, resumed, nil
}

// Begin claims a run: the task's if no log holds it, or else the recorded one. State of
// the returned Execution is Running if it was claimed; in any other state the caller has
// nothing to do. A run behind another one on its session is Queued. A session that does
// not exist yet starts with the opening events.
func (rt *Runtime) Begin(ctx context.Context, g flow.Registration, t journal.Task, opening ...session.Event) (*Execution, error) {
	rt.init()
	switch {
	case rt.Store == nil:
		return nil, errors.New("flow: the runtime has no Store: set one, or use an inprocess.Runtime, which has a log in memory")
	case rt.Values == nil:
		return nil, errors.New("flow: the runtime has a Store and no Values: set those of the Store's log")
	}
	c, resumed, err := rt.claimOf(ctx, g, t, opening)
	if err != nil {
		return nil, err
	}
	var before *journal.ClaimResult
	if !protection.ClaimBeforeRead {
		before, _ = rt.Values.Recorded(ctx, c.Session, t.ID)
	}
	granted, err := rt.Store.Claim(ctx, c)
	if suspect, ok := errors.AsType[*journal.SuspectError](err); ok && !rt.Isolates {
		c.Group = max(1, suspect.Group)
		granted, err = rt.Store.Claim(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	if before != nil && before.Attempt > 0 {
		granted.Journal = before.Journal
	}
	ex := newExecution(&Execution{
		rt: rt, reg: g, id: t.ID, home: t.Session, granted: granted, state: granted.State, task: &granted.Record.Task,
		attempt: granted.Attempt, pos: position{journal: granted.Journal, last: granted.Started},
		account: newAccount(granted.Record, granted.Record.Task.Budget), inbox: inbox{signals: granted.Record.Inbox()},
		levels: levels{all: []level{{run: t.ID, home: t.Session}}, resumed: resumed},
	})
	ex.charge(ex.pos.journal)
	ex.levels.warming = ex.task.Branch != nil && ex.task.Branch.WarmsCache
	if granted.State.Terminal() {
		ex.result = granted.Session
	}
	if granted.State == run.Running {
		ex.input = placedAs(ex.task, granted.Base)
		ex.sessions.hold(ex.home, &heldSession{}, granted.Base, granted.Session, false)
		if err := ex.around.load(ctx); err != nil {
			return nil, err
		}
	}
	return ex, nil
}
