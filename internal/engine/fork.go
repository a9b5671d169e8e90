package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Fork is flow.Fork.
func (p *place) Fork(ctx context.Context, s session.Session, detached bool) (session.Session, error) {
	kind, opening := journal.StepFork, session.OpenFork
	if detached {
		kind, opening = journal.StepDetach, session.OpenDetach
	}
	st, err := p.begin(ctx, kind, "", s, false, "")
	if err != nil {
		return s, err
	}
	defer st.end()
	child, err := st.ex.forks.fork(st, opening, "")
	if err != nil {
		return s, st.fail(err)
	}
	return child, nil
}

// own makes s a value that the run may extend: an unborn session is begun; an older
// value, and a session that the run does not hold, become forks, whose ids derive from
// the step that needs them.
func (f *forks) own(ctx context.Context, path run.Path, s session.Session, extends bool) (session.Session, error) {
	ex := f.ex
	if extends {
		if err := mayExtend(ex, path, s); err != nil {
			return s, err
		}
	}
	ex.mu.Lock()
	s = ex.sessions.rebase(s)
	h := f.heldAt(path, s.Key())
	ex.mu.Unlock()
	if !extends || h != nil && s.Ref().Version == h.version || ex.levels.startsCommitted(path) {
		return s, nil
	}
	opening, source := session.OpenFork, ""
	switch {
	case s.Unborn():
		opening = session.OpenLeaf
	case h != nil:
		opening, source = session.OpenImplicit, caller()
	}
	log := ex.levels.owner(path).home
	if h != nil {
		log = s.Key()
	}
	sub, err := ex.substep(ctx, log, s, journal.StepRequest{Path: path.Child("fork"), Kind: journal.StepFork, Name: opening, Input: ex.sessions.inputDigest(s, nil)})
	if err != nil {
		return s, err
	}
	sub.old = h != nil
	if source != "" && ex.rt.OnWarning != nil && sub.decision != journal.Replay {
		ex.rt.OnWarning(ex.id, fmt.Sprintf("%s: an older value of session %s is extended: this forks it; use flow.Fork if you mean it, or look for a shadowed or dropped result", source, s.Key().ID))
	}
	return f.fork(sub, opening, source)
}

// fork records a step that makes a branch and then claims it: first the parent's commit,
// then the child's.
func (f *forks) fork(st *step, opening, source string) (session.Session, error) {
	ex := f.ex
	began := time.Now()
	key := f.child(st.asked.Path)
	own := st.log == st.s.Key() && !st.old && mayExtend(ex, st.asked.Path, st.s) == nil
	st.beside = !own // the edits go to the child
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		if err := ex.values.notArchived(st.ctx, st.asked.Path, st.s.Key()); err != nil {
			return d, fmt.Errorf("flow: fork of %s: %w", st.s.Ref(), err)
		}
		return journal.StepCompleted{
			Links:  []session.Link{{Ref: session.Ref{Key: key, Version: st.s.Ref().Version}}},
			Source: source, Summary: "forks " + string(st.s.Key().ID),
		}, nil
	}); err != nil {
		return st.s, err
	}
	base := st.s
	if own {
		base = st.after
	}
	var parents []session.Link
	var events, rest []session.Event
	root := base.Root()
	if own {
		ex.mu.Lock()
		ex.sessions.alias(st.s, base)
		ex.mu.Unlock()
	} else {
		events, rest = firstBatch(slices.Collect(base.Pending()))
		base = base.Committed()
	}
	if opening != session.OpenLeaf {
		l, ok := base.Link()
		if !ok {
			return st.s, fmt.Errorf("flow: fork of %s: it is not committed", base.Ref())
		}
		parents = []session.Link{l}
	}
	if opening == session.OpenLeaf || opening == session.OpenDetach {
		root = key.ID
	}
	h := &heldSession{source: source, detached: opening == session.OpenDetach}
	if st.log == st.s.Key() && !h.detached {
		h.parent = st.s.Key()
	} else {
		h.parent = ex.levels.owner(st.asked.Path).home
	}
	s, err := f.claim(st.ctx, key, root, st.opening(opening, parents...), events, h)
	if err == nil && !h.outer && ex.pos.recorder == nil && time.Since(began) > recheckAfter {
		err = f.cancelIfEnded(st.ctx, key)
	}
	return s.Edited(rest...), err
}

// recheckAfter is the duration after which the creation of a branch checks that its run
// is still open. Before that no other node considers the run lost.
const recheckAfter = 250 * time.Millisecond

// cancelIfEnded cancels a branch if its run has ended since: the end of the run may have
// found no branch to cancel.
func (f *forks) cancelIfEnded(ctx context.Context, branch session.Key) error {
	ex := f.ex
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	g, err := ex.rt.Values.Recorded(bounded, ex.home, ex.id)
	switch {
	case err != nil:
		return fmt.Errorf("flow: look how run %s stands: %w: %w", ex.id, session.ErrUnavailable, err)
	case !g.State.Terminal():
		return nil // a later attempt finds the branch
	}
	why := "the run that opened this branch " + g.State.Past()
	err = ex.rt.Store.Apply(bounded, journal.Signal{To: branch, Run: ex.id, Cancel: &journal.CancelRequested{By: string(ex.id), Reason: why, Run: ex.id, Settle: g.Record.Ended.Settle}})
	if errors.Is(err, run.ErrState) {
		err = nil // it is cancelled already
	}
	return errors.Join(fmt.Errorf("%w: it %s", run.ErrSuperseded, g.State.Past()), err)
}

// child returns the session that the step at a path makes.
func (f *forks) child(path run.Path) session.Key {
	return session.Key{Tenant: f.ex.home.Tenant, ID: f.ex.rt.Mint.Child(f.ex.home.Tenant, string(f.ex.levels.owner(path).run), string(path))}
}

// opening returns the opening of the session that the step makes.
func (st *step) opening(kind string, parents ...session.Link) session.Opening {
	return session.Opening{Kind: kind, Parents: parents, Run: string(st.ex.levels.owner(st.asked.Path).run), Step: string(st.asked.Path)}
}

// claim claims a session that this run made. On a later attempt it also loads the records
// of that session's log.
func (f *forks) claim(ctx context.Context, k session.Key, root session.ID, open session.Opening, events []session.Event, h *heldSession) (session.Session, error) {
	ex := f.ex
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	var g *journal.ClaimResult
	var err error
	of := ex.levels.owner(run.Path(open.Step))
	h.outer = ex.levels.outer(run.Path(open.Step))
	switch {
	case of.until != "":
		g, err = ex.around.ended(bounded, k, of)
	case h.outer:
		g, err = ex.rt.Values.Recorded(bounded, k, run.ID(open.Run))
	default:
		g, err = ex.rt.Store.Claim(bounded, journal.Claim{
			Session: k, Home: ex.home, Run: ex.id, Attempt: ex.attempt, Revision: ex.reg.Revision, Open: open, Root: root, Events: events,
		})
	}
	if err != nil {
		return session.Session{}, err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	h.at = run.Path(open.Step)
	if !h.outer {
		h.used, h.lost, h.steps = ex.charge(g.Journal)
	}
	ex.pos.journal.Merge(g.Journal)
	ex.sessions.hold(k, h, g.Base, g.Session, !h.outer)
	if l, ok := g.Base.Link(); ok {
		h.link = l
	}
	ex.rt.Values.Keep(g.Base)
	return g.Base, nil
}
