package inprocess

import (
	"context"
	"errors"
	"fmt"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/run"
)

// attempt carries a work item out.
func (t *tree) attempt(w journal.Work) error {
	if w.Signal != nil {
		return apply(t.ctx, t.rt, *w.Signal)
	}
	g := t.reg
	if w.Task.Workflow != g.Name {
		var ok bool
		if g, ok = t.d.lookup(w.Task.Workflow); !ok {
			return t.started.begun(w.Task, unknownWorkflow(w.Task))
		}
	}
	select {
	case t.slots <- struct{}{}:
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
	defer func() { <-t.slots }()
	ex, err := t.rt.Begin(t.ctx, g, *w.Task)
	if errors.Is(err, run.ErrState) || err == nil && ex.State() != run.Running {
		if err == nil {
			t.started.beginLater(ex)
		}
		return nil // it executes already, or has ended
	}
	if err != nil {
		return t.started.begun(w.Task, err)
	}
	state, err := ex.Forward(t.ctx)
	switch state {
	case run.Running, run.NeedsReview:
		return fmt.Errorf("flow: run %s is %s: %w", ex.Task().ID, state, err)
	case run.Waiting:
		if t.started.has(w.Task.ID) {
			t.tickAtDeadline(ex.Record(), w.Task.Session)
		}
	}
	return nil
}

// apply applies a signal to its session. If the parent of a reporting branch no longer
// waits for the report, apply closes the branch with the outcome in the parent's log.
func apply(ctx context.Context, rt *engine.Runtime, s journal.Signal) error {
	err := rt.Store.Apply(ctx, s)
	if s.Received != nil && s.Received.Kind == journal.Report && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		child := s.Received.Branch.Link.Key
		d, readErr := rt.Values.BranchOutcome(ctx, s.To, s.Run, child.ID)
		if errors.Is(readErr, run.ErrState) {
			return nil // the parent decides the outcome later, and then closes the branch
		}
		if readErr != nil {
			return readErr
		}
		err = rt.Store.Apply(ctx, journal.Signal{To: child, Run: run.ID(child.ID), Close: &d})
	}
	if free := s.Unwanted(); free != nil && (errors.Is(err, run.ErrState) || errors.Is(err, run.ErrUnknownRun)) {
		err = rt.Store.Apply(ctx, *free)
	}
	if errors.Is(err, run.ErrState) {
		return nil // it has no effect anymore
	}
	return err
}
