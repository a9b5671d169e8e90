package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Runs reads runs and controls them. A control method takes the run's id and a
// messages.Control, whose By and Reason are kept as evidence: By is the caller's own
// claim of identity, recorded beside the user of the connection. It returns once the
// request is recorded.
type Runs struct{ c *Client }

// RunsOptions select the runs to list; nil means all.
type RunsOptions struct {
	States   []run.State // only those in one of them
	Workflow string      // only those of one workflow
	By       string      // only those that a user submitted or resubmitted
	// Where selects runs by conditions like "tool=grep" and "state in (failed,waiting)",
	// combined with and, or, not and parentheses; see `rath help where`. A malformed
	// selector is run.ErrMalformed.
	Where string
	Limit int // of rows; 0 means no limit
	// Progress is called while there is more to read, with the number of runs found and
	// the searched part of the history, from 0 to 1: finding few runs among many takes
	// long. It may be nil.
	Progress func(found int, part float64)
	// Behind is called for each page that a node read from the whole history because its
	// index of runs catches up, with the number of messages that the index lacks. It may
	// be nil.
	Behind func(messages uint64)
}

// List returns runs, the newest first.
func (rs *Runs) List(ctx context.Context, o *RunsOptions) ([]messages.RunInfo, error) {
	var opts RunsOptions
	if o != nil {
		opts = *o
	}
	var out []messages.RunInfo
	q := wire.Query{States: opts.States, Workflow: opts.Workflow, Where: opts.Where}
	if opts.By != "" {
		if err := messages.ValidUser(opts.By); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		q.Where = "by=" + opts.By
		if opts.Where != "" {
			q.Where += " and (" + opts.Where + ")"
		}
	}
	for all := uint64(0); ; {
		if opts.Limit > 0 {
			q.Limit = min(opts.Limit-len(out), 1000)
		}
		page, err := query[wire.Runs](ctx, rs.c, messages.QueryRuns, q)
		if err != nil {
			return out, fmt.Errorf("list runs: %w", err)
		}
		out = append(out, page.Runs...)
		if page.Behind > 0 && opts.Behind != nil {
			opts.Behind(page.Behind)
		}
		if q.After = page.Next; page.Next == 0 || opts.Limit > 0 && len(out) >= opts.Limit {
			return out, nil
		}
		if all = max(all, page.Next); opts.Progress != nil {
			opts.Progress(len(out), 1-float64(page.Next)/float64(all))
		}
	}
}

// Get returns the record of a run, or of the most recently submitted one for
// messages.Last. It returns run.ErrUnknownRun for an unknown id.
func (rs *Runs) Get(ctx context.Context, id run.ID) (messages.RunInfo, error) {
	return query[messages.RunInfo](ctx, rs.c, messages.QueryRun, wire.Query{Run: id})
}

// Result returns the outcome of a run. If the run has not ended, it returns
// run.ErrState with the run's status.
func (rs *Runs) Result(ctx context.Context, id run.ID) (messages.Result, error) {
	return query[messages.Result](ctx, rs.c, messages.QueryResult, wire.Query{Run: id})
}

// Live returns the current state of a run: the work of the node that executes it, or
// the place and the reason of its wait. It queries that node and the relay of the run,
// and reads no log. The answer arrives within seconds, even if the node has died. It
// returns run.ErrUnknownRun for an unknown id.
func (rs *Runs) Live(ctx context.Context, id run.ID) (messages.Live, error) {
	return query[messages.Live](ctx, rs.c, messages.QueryLive, wire.Query{Run: id})
}

// Waits reports whether a task with this id waits for a node to accept it. It returns
// run.ErrBusy if too many tasks wait to search them.
func (rs *Runs) Waits(ctx context.Context, id run.ID) (bool, error) {
	r, err := query[messages.RunInfo](ctx, rs.c, messages.QueryRun, wire.Query{Run: id, All: true})
	if errors.Is(err, run.ErrUnknownRun) {
		return false, nil
	}
	return err == nil && r.State == run.Queued && r.Session == "", err
}

// Replay runs the code of a run's workflow against the run's record, on a node that
// offers the workflow, with models and tools switched off, and reports the differences.
// run.ErrNotSupported means that no node offers the workflow.
func (rs *Runs) Replay(ctx context.Context, id run.ID) (messages.Replay, error) {
	r, err := query[messages.Replay](ctx, rs.c, messages.QueryReplay, wire.Query{Run: id})
	if err != nil {
		return r, fmt.Errorf("replay run %s: %w", id, err)
	}
	return r, nil
}

// Message sends m.Text to an open run: to its next model call, or to the step that
// waits for a message. m.Interrupt cuts off the current model call, which is then
// repeated with the message.
func (rs *Runs) Message(ctx context.Context, id run.ID, m messages.Control) error {
	return rs.c.control(ctx, id, messages.VerbMessage, m)
}

// Cancel asks a run to stop; the run ends soon after. It also cancels a run whose task
// no node has accepted yet. run.ErrState means that the run has ended.
// run.ErrUnknownRun means that no task with this id was stored: then nothing is
// recorded, and a task that arrives later runs.
func (rs *Runs) Cancel(ctx context.Context, id run.ID, d messages.Control) error {
	d.Submitted = true
	return rs.c.control(ctx, id, messages.VerbCancel, d)
}

// Rebudget replaces the budget of an open run with d.Budget. The new budget counts from
// the run's start; its zero fields are unlimited. A run that has consumed more ends
// with its next step.
func (rs *Runs) Rebudget(ctx context.Context, id run.ID, d messages.Control) error {
	return rs.c.control(ctx, id, messages.VerbRebudget, d)
}

// Quarantine puts the session of a run into quarantine: the current step ends, no
// further one starts there, and no other session merges or recalls it, until
// [Runs.Release]. It requires d.Reason. The run may have ended. run.ErrState means that
// the session is in quarantine already.
func (rs *Runs) Quarantine(ctx context.Context, id run.ID, d messages.Control) error {
	return rs.c.control(ctx, id, messages.VerbQuarantine, d)
}

// Release ends the quarantine of the session of a run. It requires d.Reason.
func (rs *Runs) Release(ctx context.Context, id run.ID, d messages.Control) error {
	return rs.c.control(ctx, id, messages.VerbRelease, d)
}

// Resolve decides about a run that needs review. d.Decision is run.Happened, with the
// result of the call in d.Value as JSON, run.Again, run.Pin or run.Fail. It requires
// d.Reason.
func (rs *Runs) Resolve(ctx context.Context, id run.ID, d messages.Control) error {
	return rs.c.control(ctx, id, messages.VerbResolve, d)
}

// Resume submits the task of a run that ended without success again, as a run that
// continues it, and returns the new run's id: "<id>-r1", "-r2" and so on. d.Step is the step
// at which it continues; empty is the one that failed. The records of the steps before it
// stand and are not paid again; the session, and its files, are a fork of the run's before
// the step. d.Model and d.Budget replace those of the task. It returns run.ErrState if the
// run succeeded or is open, or if a call from the step on has taken effect and must not
// happen twice.
func (rs *Runs) Resume(ctx context.Context, id run.ID, d messages.Control) (run.ID, error) {
	return rs.again(ctx, id, messages.VerbResume, d)
}

// Rerun submits the task of a run again, as a separate run on a session that starts
// like the first one, and returns its id: "<id>-r1", "-r2" and so on. The run may have
// any outcome. A branch of a fan-out cannot be rerun alone. It returns run.ErrState, and
// names the calls, if the run has made calls that must not happen twice, unless d.Repeat is
// set.
func (rs *Runs) Rerun(ctx context.Context, id run.ID, d messages.Control) (run.ID, error) {
	return rs.again(ctx, id, messages.VerbRerun, d)
}

// again sends a request that submits the task of a run again.
func (rs *Runs) again(ctx context.Context, id run.ID, verb string, d messages.Control) (run.ID, error) {
	if err := session.ValidID("run", string(id)); err != nil {
		return "", err
	}
	note, err := rs.c.requests.Control(ctx, rs.c.tenant, id, verb, d)
	if err != nil {
		return "", fmt.Errorf("%s run %s: %w", verb, id, err)
	}
	rs.c.remember(run.ID(note))
	return run.ID(note), nil
}
