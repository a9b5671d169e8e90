package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/events"
	"github.com/rathcluster/rath/internal/web/access"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Selection selects the events of a stream. At most one of Run, Session and Tree is set;
// without them the stream is the tenant's, without drafts.
type Selection struct {
	Run     run.ID
	Session string // id or name
	Tree    string // id or name of a session of the tree
	// Workflows, States and Kinds select further: events of runs of one of the workflows,
	// with one of the states, and of one of the kinds. Empty selects all.
	Workflows []string
	States    []run.State
	Kinds     []messages.EventKind
	// After is where the stream begins, if the request has no Last-Event-ID: "" for the
	// beginning of the tree or for the end of a tenant's stream, End, or the id of an event.
	After string
}

// End is the position behind all events so far.
const End = messages.LineageEnd

// chosen is a Selection whose names are resolved.
type chosen struct {
	Selection
	caller  *access.Caller
	scope   events.Scope
	session session.ID
	ended   bool // the run has ended
	// seen are decisions about runs: whether the caller sees them and the selection has
	// them.
	seen map[run.ID]bool
}

const (
	// maxSeen bounds the decisions that a reader remembers.
	maxSeen = 4096
	// appearWithin is how long a reader waits for the lineage of a run that is about to
	// begin, and appearAgain the interval of its checks.
	appearWithin = 5 * time.Second
	appearAgain  = 50 * time.Millisecond
)

// choose checks a selection of a caller.
func choose(caller *access.Caller, s Selection) (*chosen, error) {
	named := 0
	for _, name := range []string{string(s.Run), s.Session, s.Tree} {
		if name != "" {
			named++
		}
	}
	if named > 1 {
		return nil, fmt.Errorf("stream: %w: it names more than one of run, session and tree; name one", run.ErrMalformed)
	}
	return &chosen{Selection: s, caller: caller, scope: events.Scope{Tenant: caller.Tenant}, seen: map[run.ID]bool{}}, nil
}

// find resolves the names of a selection by queries that ask makes. It returns the errors of
// package client for an object that does not exist or that the caller does not see.
func (c *chosen) find(ctx context.Context, ask func(query func() error) error) error {
	switch {
	case c.Run != "":
		return c.findRun(ctx, ask)
	case c.Session+c.Tree != "":
		return ask(func() error { return c.findSession(ctx) })
	}
	return nil
}

// findRun finds the tree of a run. A run whose task is on its way may have none yet.
func (c *chosen) findRun(ctx context.Context, ask func(query func() error) error) error {
	if err := session.ValidID("run", string(c.Run)); err != nil {
		return err
	}
	for began := time.Now(); ; {
		found := false
		err := ask(func() (err error) {
			found, err = c.lookForRun(ctx)
			return err
		})
		switch {
		case found || err != nil:
			return err
		case time.Since(began) > appearWithin:
			return fmt.Errorf("run %s: %w: no node has taken its task yet; try again later", c.Run, run.ErrBusy)
		}
		select {
		case <-time.After(appearAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lookForRun returns false for a run whose task is on its way.
func (c *chosen) lookForRun(ctx context.Context) (found bool, err error) {
	r, err := c.caller.Client.Runs.Get(ctx, c.Run)
	if errors.Is(err, run.ErrUnknownRun) && !c.caller.Narrow() {
		if waits, notKnown := c.caller.Client.Runs.Waits(ctx, c.Run); notKnown == nil && waits {
			return false, nil
		}
		r, err = c.caller.Client.Runs.Get(ctx, c.Run) // a node may have taken the task meanwhile
	}
	if err != nil || r.Root == "" {
		return false, err
	}
	own, err := c.caller.Owns(ctx, &r)
	if err != nil {
		return false, err
	}
	if !own {
		return false, fmt.Errorf("run %s: %w", c.Run, run.ErrUnknownRun)
	}
	c.scope.Root, c.ended = r.Root, r.State.Terminal()
	return true, nil
}

// findSession finds the tree of a session, without its rows.
func (c *chosen) findSession(ctx context.Context) error {
	s, err := c.caller.Client.Sessions.After(ctx, c.Session+c.Tree, math.MaxInt64)
	if err != nil {
		return err
	}
	if c.scope.Root = s.Root; c.Session != "" {
		c.session = s.Session
	}
	if !c.caller.Narrow() {
		return nil
	}
	runs, err := c.caller.Client.Runs.List(ctx, &client.RunsOptions{By: c.caller.User, Where: "under=" + string(s.Session)})
	for i := range runs {
		if own, err := c.caller.Owns(ctx, &runs[i]); own || err != nil {
			return err
		}
	}
	if err == nil {
		err = fmt.Errorf("session %s: %w", s.Session, session.ErrNotFound)
	}
	return err
}

// drafts reports whether the stream has the drafts of a run; all is true for all runs of
// the tree.
func (c *chosen) drafts() (id run.ID, all bool) {
	if c.scope.Root == "" || c.ended {
		return "", false
	}
	return c.Run, c.Run == ""
}

// has reports whether the stream has an event. It asks for the run of the event where the
// event alone does not decide.
func (c *chosen) has(ctx context.Context, e *events.Event) (bool, error) {
	switch {
	case c.Run != "" && e.Run != c.Run,
		c.session != "" && e.Session != c.session,
		len(c.Kinds) > 0 && !slices.Contains(c.Kinds, e.Kind),
		len(c.States) > 0 && !slices.Contains(c.States, run.State(e.State)):
		return false, nil
	case c.Run != "", len(c.Workflows) == 0 && !c.caller.Narrow():
		return true, nil
	case e.Run == "":
		return false, nil
	}
	seen, ok := c.seen[e.Run]
	if ok {
		return seen, nil
	}
	r, err := c.caller.Client.Runs.Get(ctx, e.Run)
	if err == nil {
		seen, err = c.caller.Owns(ctx, &r)
	}
	if err != nil && !errors.Is(err, run.ErrUnknownRun) {
		return false, err
	}
	seen = seen && (len(c.Workflows) == 0 || slices.Contains(c.Workflows, r.Workflow))
	if len(c.seen) == maxSeen {
		clear(c.seen)
	}
	c.seen[e.Run] = seen
	return seen, nil
}
