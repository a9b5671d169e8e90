package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rathcluster/rath/internal/journal"
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
	child, err := st.ex.fork(st, opening, "")
	if err != nil {
		return s, st.fail(err)
	}
	return child, nil
}

// own makes s a value that the run may extend: an unborn session is born, a
// session of somebody else and an older value become forks that are named by
// the step that needs them.
func (ex *Execution) own(ctx context.Context, path run.Path, s session.Session, extends bool) (session.Session, error) {
	ex.mu.Lock()
	s = ex.sessions.rebase(s)
	h := ex.heldAt(path, s.Key())
	ex.mu.Unlock()
	if !extends || h != nil && s.Ref().Version == h.version {
		return s, nil
	}
	opening, source := session.OpenFork, ""
	switch {
	case s.Unborn():
		opening = session.OpenLeaf
	case h != nil:
		opening, source = session.OpenImplicit, caller()
	}
	sub := &step{ex: ex, ctx: ctx, s: s, log: ex.levels.owner(path).home}
	sub.asked = journal.StepRequest{Path: path.Child("fork"), Kind: journal.StepFork, Name: opening, Input: inputDigest(s, nil)}
	if h != nil {
		sub.log, sub.old = s.Key(), true
	}
	if err := sub.decide(); err != nil {
		return s, err
	}
	if source != "" && ex.rt.OnWarning != nil && sub.decision != journal.Replay {
		ex.rt.OnWarning(ex.id, fmt.Sprintf("%s: an older value of session %s is extended: this forks it; use flow.Fork if you mean it, or look for a shadowed or dropped result", source, s.Key().ID))
	}
	return ex.fork(sub, opening, source)
}

// fork records a step that makes a branch and then claims it: first the
// parent's commit, then the child's.
func (ex *Execution) fork(st *step, opening, source string) (session.Session, error) {
	began := time.Now()
	key := session.Key{Tenant: ex.home.Tenant, ID: ex.rt.Mint.Child(ex.home.Tenant, string(ex.levels.owner(st.asked.Path).run), string(st.asked.Path))}
	own := st.log == st.s.Key() && !st.old
	base := st.s
	switch {
	case st.decision == journal.Replay && own:
		base = st.record.Session
	case st.decision == journal.Replay:
	default:
		if err := ex.notArchived(st.ctx, st.asked.Path, st.s.Key()); err != nil {
			return st.s, fmt.Errorf("flow: fork of %s: %w", st.s.Ref(), err)
		}
		commit := st.commit
		if !own { // the edits go to the child
			commit = st.commitBeside
		}
		s := st.s
		ack, err := commit(journal.StepCompleted{
			Links:  []session.Link{{Ref: session.Ref{Key: key, Version: s.Ref().Version}}},
			Source: source, Summary: "forks " + string(s.Key().ID),
		})
		st.s = s
		if err != nil {
			return st.s, err
		}
		if own {
			base = ack.Session
		}
	}
	open := session.Opening{Kind: opening, Run: string(ex.levels.owner(st.asked.Path).run), Step: string(st.asked.Path)}
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
		open.Parents = []session.Link{l}
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
	s, err := ex.claim(st.ctx, st.asked.Path, key, root, open, events, h)
	if err == nil && !h.outer && ex.pos.recorder == nil && time.Since(began) > recheckAfter {
		err = ex.cancelIfEnded(st.ctx, key)
	}
	return s.Edited(rest...), err
}

// forkDoubt is after how long it is looked up whether the run still stands that
// made a branch: no other node takes a run for lost so soon.
const recheckAfter = 250 * time.Millisecond

// stands cancels a branch if its run has ended: whoever ended it may have found no
// branch to cancel.
func (ex *Execution) cancelIfEnded(ctx context.Context, branch session.Key) error {
	if ex.rt.Values == nil {
		return nil
	}
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
	err = ex.rt.Store.Apply(bounded, journal.Signal{To: branch, Run: ex.id, Cancel: &journal.CancelRequested{By: string(ex.id), Reason: why, Run: ex.id}})
	if errors.Is(err, run.ErrState) {
		err = nil // somebody did already
	}
	return errors.Join(fmt.Errorf("%w: it %s", run.ErrSuperseded, g.State.Past()), err)
}

// claim takes a session that this run made. On a later attempt it also brings
// what that session's log recorded.
func (ex *Execution) claim(ctx context.Context, path run.Path, k session.Key, root session.ID, open session.Opening, events []session.Event, h *heldSession) (session.Session, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	var g *journal.ClaimResult
	var err error
	if h.outer = ex.levels.outer(path); h.outer {
		g, err = ex.rt.Values.Recorded(bounded, k, ex.levels.owner(path).run)
	} else {
		g, err = ex.rt.Store.Claim(bounded, journal.Claim{
			Session: k, Home: ex.home, Run: ex.id, Attempt: ex.attempt, Revision: ex.reg.Revision, Open: open, Root: root, Events: events,
		})
	}
	if err != nil {
		return session.Session{}, err
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if !h.outer {
		ex.charge(g.Journal)
	}
	ex.pos.journal.Merge(g.Journal)
	ex.sessions.hold(k, h, g.Base, g.Session, !h.outer)
	if l, ok := g.Base.Link(); ok {
		h.link = l
	}
	if ex.rt.Values != nil {
		ex.rt.Values.Keep(g.Base)
	}
	return g.Base, nil
}
