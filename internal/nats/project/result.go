package project

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/wire/translate"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// PutResult stores the result of a run that has ended here as KeepResult does. It signs a
// result without a signature if this connection signs: a result that should have a
// signature is never stored without one, and a crash before the store leaves it to the next
// relay.
//
// A result of [translate.Settlements] changes the usage of the stored one.
func (c *Projections) PutResult(ctx context.Context, t session.Tenant, r messages.Result, look bool) error {
	if r.Settled > 0 && r.State == "" {
		return c.settleResult(ctx, t, r)
	}
	if statement := r.Say(t); c.streams.O.Sign != nil && statement != "" && r.Signature == "" {
		signature, err := c.streams.O.Sign(statement)
		if err != nil {
			return fmt.Errorf("nats/project: sign result of run %s: %w", r.Run, err)
		}
		r.Statement, r.Signature = statement, signature
	}
	return c.KeepResult(ctx, t, r, look)
}

// KeepResult stores the result of a run as it is unless the run has one, until ctx ends. If
// look is set it first checks for a stored result: storing it again would notify its
// subscribers again.
func (c *Projections) KeepResult(ctx context.Context, t session.Tenant, r messages.Result, look bool) error {
	data, err := r.Encode()
	if err != nil {
		return err
	}
	subject := messages.RunSubject(t, r.Run, messages.OnResult)
	for wait := conn.NewBackoff(); ; look = true {
		if look {
			_, lookErr := c.messages.LeaderLast(ctx, streams.StreamResult, subject)
			if lookErr == nil {
				return nil
			}
			if !errors.Is(lookErr, conn.ErrNoMessage) {
				err = lookErr
			}
		}
		if err == nil {
			_, err = c.messages.PublishExpecting(ctx, subject, 0, nil, data)
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

// settleResult updates the usage in the stored result of a run to the usage in its log,
// until ctx ends. The follow-up of the run's end stores a result that does not exist yet;
// an expired result needs no change.
func (c *Projections) settleResult(ctx context.Context, t session.Tenant, now messages.Result) error {
	subject := messages.RunSubject(t, now.Run, messages.OnResult)
	for wait := conn.NewBackoff(); ; {
		m, err := c.messages.LeaderLast(ctx, streams.StreamResult, subject)
		if errors.Is(err, conn.ErrNoMessage) {
			r, err := c.Result(ctx, t, now.Run)
			if errors.Is(err, session.ErrArchived) {
				return nil // the archive has the result in its log
			}
			if err != nil {
				return fmt.Errorf("nats/project: settle result of run %s: %w", now.Run, err)
			}
			// The follow-up of the end may store its own result concurrently: then that
			// result is checked.
			if err := c.PutResult(ctx, t, r, false); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			r, decodeErr := messages.DecodeResult(m.Data)
			if decodeErr != nil {
				return fmt.Errorf("nats/project: result of run %s: %w", now.Run, decodeErr)
			}
			if r.Settled >= now.Settled {
				return nil
			}
			r.Usage, r.Lost, r.Settled = now.Usage, now.Lost, now.Settled
			data, encodeErr := r.Encode()
			if encodeErr != nil {
				return encodeErr
			}
			_, err = c.messages.PublishExpecting(ctx, subject, m.Seq, nil, data)
		}
		if err == nil || errors.Is(err, conn.ErrFull) {
			return err
		}
		if wait.Sleep(ctx) != nil {
			return fmt.Errorf("nats/project: settle result of run %s: %w", now.Run, err)
		}
	}
}

// HasResult reports whether a run has its stored result.
func (c *Projections) HasResult(ctx context.Context, t session.Tenant, id run.ID) (bool, error) {
	_, there, err := c.Stored(ctx, t, id)
	return there, err
}

// Stored returns the stored result of a run, if it has one.
func (c *Projections) Stored(ctx context.Context, t session.Tenant, id run.ID) (r messages.Result, there bool, err error) {
	m, err := c.messages.Last(ctx, streams.StreamResult, messages.RunSubject(t, id, messages.OnResult))
	switch {
	case errors.Is(err, conn.ErrNoMessage):
		return r, false, nil
	case err == nil:
		r, err = messages.DecodeResult(m.Data)
	}
	if err != nil {
		return r, false, fmt.Errorf("nats/project: result of run %s: %w", id, err)
	}
	return r, true, nil
}

// signing is how long a result read from the log waits for the stored one.
const signing = 5 * time.Second

// settled returns the stored result instead of a result read from the log, if this process
// signs and the run has just ended: the relay is about to store it with its signature.
func (c *Projections) settled(ctx context.Context, t session.Tenant, r messages.Result) (messages.Result, error) {
	if c.streams.O.Sign == nil || time.Since(time.UnixMilli(r.EndedMS)) > 2*signing {
		return r, nil
	}
	waiting, cancel := context.WithTimeout(ctx, signing)
	defer cancel()
	for wait := conn.NewBackoff(); wait.Sleep(waiting) == nil; {
		if stored, there, err := c.Stored(waiting, t, r.Run); there && err == nil {
			return stored, nil
		}
	}
	return r, ctx.Err()
}

// Result returns the stored result of a run, or else the result in its log; the stored one
// follows the log. The error is run.ErrState, with the run's state, while the run has not
// ended, run.ErrPruned once a prune has removed log and result, and run.ErrUnknownRun for a
// run that was not submitted.
func (c *Projections) Result(ctx context.Context, t session.Tenant, id run.ID) (messages.Result, error) {
	if r, there, err := c.Stored(ctx, t, id); there || err != nil {
		return r, err
	}
	home, err := c.logs.RunSession(ctx, t, id)
	if err != nil {
		return messages.Result{}, err
	}
	var runs journal.RunState
	var result *messages.Result
	for e, err := range c.logs.Log().Read(ctx, home, commitlog.Position{}) {
		if err != nil {
			return messages.Result{}, c.pruned(ctx, t, id, err)
		}
		facts := journal.Facts(e.Commit)
		for _, r := range translate.Results(e, facts) {
			if r.Run == id {
				result = &r
			}
		}
		if result != nil {
			translate.Settle(result, facts)
			continue
		}
		if err := runs.Fold(home, facts); err != nil {
			return messages.Result{}, fmt.Errorf("nats/project: read the log of run %s: %w", id, err)
		}
	}
	if result != nil {
		return c.settled(ctx, t, *result)
	}
	state := run.Queued
	if r := runs.Run(id); r != nil {
		state = r.State
	}
	return messages.Result{}, NoResult(id, state)
}

// pruned returns why the log of a run cannot be read, as run.ErrPruned if a prune removed
// the run's result as well.
func (c *Projections) pruned(ctx context.Context, t session.Tenant, id run.ID, why error) error {
	if !errors.Is(why, session.ErrArchived) {
		return why
	}
	a, _, err := eventlog.ReadAlias(ctx, c.logs, eventlog.RunAliasSubject(t, id))
	switch {
	case err != nil:
		return err
	case a.Ended != "":
		return fmt.Errorf("run %s has ended, and its result was pruned: %w: %w", id, run.ErrPruned, why)
	}
	return why
}

// NoResult is the error for a run that has not ended.
func NoResult(id run.ID, s run.State) error {
	return fmt.Errorf("run %s is %s, it has no result yet: %w", id, s, run.ErrState)
}
