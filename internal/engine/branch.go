package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine/stepper"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// outermost returns the task of the outermost run, whose settings all branches share.
func (a *around) outermost() *journal.Task {
	if a.ex.levels.root != nil {
		return a.ex.levels.root
	}
	return a.ex.task
}

// load reads the records of the runs whose code the execution runs on its way to its own
// part.
func (a *around) load(ctx context.Context) error {
	switch t := a.ex.task; {
	case t.Branch != nil:
		return a.loadAncestors(ctx)
	case t.Resumes != nil:
		return a.loadResumed(ctx, &a.ex.levels.all[0], t, a.ex.granted.Base)
	}
	return nil
}

// loadAncestors reads the records of the runs around a branch. It is called after the
// claim: it detects a parent that continued without the branch before the claim; a parent
// that does so later closes the branch's session.
func (a *around) loadAncestors(ctx context.Context) error {
	ex := a.ex
	b := ex.task.Branch
	own := ex.levels.all[0]
	if !b.Remote {
		ex.levels.all, own.path = nil, b.Path
	}
	for i, a := range b.Ancestors {
		last := i == len(b.Ancestors)-1
		if b.Remote && !last {
			continue
		}
		home := session.Key{Tenant: ex.home.Tenant, ID: a.Session}
		g, err := ex.rt.Values.Recorded(ctx, home, a.Run)
		if err != nil {
			return fmt.Errorf("flow: branch %s of run %s: %w", b.Name, a.Run, err)
		}
		switch {
		case g.State.Terminal():
			ex.levels.stopReason = "the run that opened this branch " + g.State.Past()
			return nil
		case last && (g.Journal.Has(b.Parent().Path) || g.Journal.Over(b.Path)):
			ex.levels.stopReason = "the run that opened this branch went on without it"
			return nil
		case b.Remote:
			return nil
		}
		if err := ex.around.enclose(ctx, a.Path, g); err != nil {
			return err
		}
	}
	own.base = ex.granted.Base
	ex.levels.all = append(ex.levels.all, own)
	return nil
}

// enclose adds the records and the level of the next run around a branch, whose own steps
// are below a path. The outermost run is the first.
func (a *around) enclose(ctx context.Context, path run.Path, g *journal.ClaimResult) error {
	ex := a.ex
	ex.pos.journal.MergeEnclosing(g.Journal)
	one := level{run: g.Record.ID, home: g.Record.Home, path: path, base: g.Base}
	if len(ex.levels.all) == 0 {
		ex.levels.root, ex.input, ex.pos.last = &g.Record.Task, placedAs(&g.Record.Task, g.Base), g.Started
		if ex.levels.root.Resumes != nil {
			if err := a.loadResumed(ctx, &one, ex.levels.root, g.Base); err != nil {
				return err
			}
		}
	}
	ex.sessions.hold(one.home, &heldSession{outer: true}, g.Base, g.Session, false)
	ex.levels.all = append(ex.levels.all, one)
	return nil
}

// releaseAfter returns the events that are committed with the record of a step and let
// the other branches of the fan-out begin, if they wait for this one: once a model has
// answered, or when the branch opens branches itself. Concurrent steps may record it
// twice, which is harmless.
func (a *around) releaseAfter(d journal.StepCompleted) ([]session.Event, error) {
	ex := a.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if !modelAnswered(d) && d.Kind != journal.StepFanOut {
		return nil, nil
	}
	release, err := a.releaseSiblings()
	ex.levels.warming = ex.levels.warming && err != nil
	return release, err
}

// releaseSiblings returns the events that let the other branches begin, if they wait for
// this one: it has an answer, or itself waits. ex.mu is held.
func (a *around) releaseSiblings() ([]session.Event, error) {
	if !a.ex.levels.warming {
		return nil, nil
	}
	e, err := journal.NewEvent(journal.KindCacheWarmed, journal.CacheWarmed{Parent: *a.ex.task.Branch.Parent(), Run: a.ex.id})
	return []session.Event{e}, err
}

// modelAnswered reports whether a step got an answer of a model.
func modelAnswered(d journal.StepCompleted) bool {
	switch d.Kind {
	case journal.StepModel, journal.StepCompress, journal.StepSelection:
		return d.Code == ""
	}
	return false
}

// endUnneeded ends a branch that the run around it no longer needs.
func (end *ending) endUnneeded(ctx context.Context) (run.State, error) {
	ex := end.ex
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	// That run may have used the end of a later attempt: its log has the closing state of
	// the session, or leaves it open for now.
	parent := ex.task.Branch.Parent()
	d, err := ex.rt.Values.BranchOutcome(ctx, session.Key{Tenant: ex.home.Tenant, ID: parent.Session}, parent.Run, ex.home.ID)
	if err == nil {
		err = ex.rt.Store.Apply(ctx, journal.Signal{To: ex.home, Run: ex.id, Close: &d})
	}
	if err != nil && !errors.Is(err, run.ErrState) {
		return run.Running, err
	}
	state, err := end.finishFailed(ctx, run.Cancelled, fmt.Errorf("%w: %s", run.ErrCancelled, ex.levels.stopReason))
	ex.mu.Lock()
	ex.state = state
	ex.mu.Unlock()
	return state, err
}

// errBranchRan leaves the code around an execution's branch.
var errBranchRan = errors.New("flow: the branch has run")

// enterBranch runs the branch of a fan-out that is this execution's branch, or contains
// it.
func (a *around) enterBranch(ctx context.Context, fan run.Path, bs []flow.Branch) error {
	ex := a.ex
	at := ex.levels.below(fan)
	to := ex.levels.all[at]
	i := slices.IndexFunc(bs, func(b flow.Branch) bool { return fan.Child(b.Name) == to.path })
	if i < 0 {
		return ex.failed(fmt.Errorf("%w: the fan-out at step %s has no branch for %s any more", run.ErrMismatch, fan, to.path))
	}
	inside := stepper.With(ctx, placeIn(&scope{ex: ex, prefix: to.path}))
	s, err := ex.shielded(func() (session.Session, error) { return bs[i].Workflow.Forward(inside, to.base) })
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if at == len(ex.levels.all)-1 {
		ex.levels.result = &branchResult{s, err}
	}
	if ex.life.poison == nil {
		ex.life.poison = errBranchRan
	}
	return ex.life.poison
}

// leaveBranch returns the result of the branch, once the code around it has returned err.
func (a *around) leaveBranch(err error) (session.Session, error) {
	ex := a.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if errors.Is(ex.life.poison, errBranchRan) {
		ex.life.poison = nil
	}
	switch {
	case ex.levels.result != nil:
		return ex.levels.result.s, ex.levels.result.err
	case ex.life.poison != nil:
		return session.Session{}, ex.life.poison
	case err != nil && ex.life.stopped() != nil:
		return session.Session{}, ex.life.stopped()
	case err != nil:
		err = fmt.Errorf("%w: the code failed on its way to branch %s: %w", run.ErrMismatch, ex.task.Branch.Name, err)
	default:
		err = fmt.Errorf("%w: the code ended on its way to branch %s", run.ErrMismatch, ex.task.Branch.Name)
	}
	ex.life.poison = err
	return session.Session{}, err
}
