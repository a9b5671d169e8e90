package project

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// PutResult stores the result of a run unless it has one, until ctx ends. look
// asks first whether it is there: storing it would tell its subscribers again.
func (c *Projections) PutResult(ctx context.Context, t session.Tenant, r messages.Result, look bool) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	subject := messages.RunSubject(t, r.Run, messages.OnResult)
	for wait := conn.NewBackoff(); ; look = true {
		if look {
			_, lookErr := c.LeaderLast(ctx, streams.StreamResult, subject)
			if lookErr == nil {
				return nil
			}
			if !errors.Is(lookErr, conn.ErrNoMessage) {
				err = lookErr
			}
		}
		if err == nil {
			_, err = c.PublishExpecting(ctx, subject, 0, nil, data)
		}
		if err == nil || errors.Is(err, conn.ErrFull) {
			return err
		}
		if wait.Sleep(ctx) != nil {
			return fmt.Errorf("nats/project: store result of run %s: %w", r.Run, err)
		}
		err = nil
	}
}

// Told reports whether a run has its stored result.
func (c *Projections) Told(ctx context.Context, t session.Tenant, id run.ID) (bool, error) {
	_, err := c.Last(ctx, streams.StreamResult, messages.RunSubject(t, id, messages.OnResult))
	if errors.Is(err, conn.ErrNoMessage) {
		return false, nil
	}
	return err == nil, err
}

// Result returns the stored result of a run, or what its log says: the stored
// one follows the log. It is run.ErrState, and says how the run stands, while
// the run has not ended, and run.ErrUnknownRun for one that was not submitted.
func (c *Projections) Result(ctx context.Context, t session.Tenant, id run.ID) (messages.Result, error) {
	m, err := c.Last(ctx, streams.StreamResult, messages.RunSubject(t, id, messages.OnResult))
	switch {
	case err == nil:
		return messages.DecodeResult(m.Data)
	case !errors.Is(err, conn.ErrNoMessage):
		return messages.Result{}, fmt.Errorf("nats/project: result of run %s: %w", id, err)
	}
	home, err := c.RunSession(ctx, t, id)
	if err != nil {
		return messages.Result{}, err
	}
	var runs journal.RunState
	for e, err := range c.Log().Read(ctx, home, session.Position{}) {
		if err != nil {
			return messages.Result{}, err
		}
		facts := journal.Facts(e.Commit)
		for _, r := range messages.Results(e, facts) {
			if r.Run == id {
				return r, nil
			}
		}
		if err := runs.Fold(home, facts); err != nil {
			return messages.Result{}, fmt.Errorf("nats/project: read the log of run %s: %w", id, err)
		}
	}
	state := run.Queued
	if r := runs.Run(id); r != nil {
		state = r.State
	}
	return messages.Result{}, fmt.Errorf("run %s is %s, it has no result yet: %w", id, state, run.ErrState)
}
