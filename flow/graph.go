package flow

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Fork returns a branch of s: a session of its own that starts as s is. It
// costs the same however long s is, and s can go on independently. A branch
// ends with [Adopt], [Reject] or, if Forward returns something else, as not
// returned.
func Fork(ctx context.Context, s session.Session) (session.Session, error) {
	return forkStep(ctx, run.StepFork, session.OpenFork, s)
}

// Detach returns a copy of s that is no branch of it: it has no place in the
// tree and stays open when the run ends.
func Detach(ctx context.Context, s session.Session) (session.Session, error) {
	return forkStep(ctx, run.StepDetach, session.OpenDetach, s)
}

func forkStep(ctx context.Context, kind, opening string, s session.Session) (session.Session, error) {
	st, err := begin(ctx, kind, "", s, false, "")
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
	s = ex.rebase(s)
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
	sub := &step{ex: ex, ctx: ctx, s: s, log: ex.owner(path).home}
	sub.asked = run.Asked{Path: path.Child("fork"), Kind: run.StepFork, Name: opening, Input: inputDigest(s, nil)}
	if h != nil {
		sub.log, sub.old = s.Key(), true
	}
	if err := sub.decide(); err != nil {
		return s, err
	}
	if source != "" && ex.rt.OnWarning != nil && sub.decision != run.Replay {
		ex.rt.OnWarning(ex.id, fmt.Sprintf("%s: an older value of session %s is extended: this forks it; use flow.Fork if you mean it, or look for a shadowed or dropped result", source, s.Key().ID))
	}
	return ex.fork(sub, opening, source)
}

// fork records a step that makes a branch and then claims it: first the
// parent's commit, then the child's.
func (ex *Execution) fork(st *step, opening, source string) (session.Session, error) {
	key := session.Key{Tenant: ex.home.Tenant, ID: ex.rt.Mint.Child(ex.home.Tenant, string(ex.owner(st.asked.Path).run), string(st.asked.Path))}
	own := st.log == st.s.Key() && !st.old
	base := st.s
	switch {
	case st.decision == run.Replay && own:
		base = st.record.Session
	case st.decision == run.Replay:
	default:
		commit := st.commit
		if !own { // the edits go to the child
			commit = st.commitBeside
		}
		s := st.s
		ack, err := commit(run.Done{
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
	open := session.Opening{Kind: opening, Run: string(ex.owner(st.asked.Path).run), Step: string(st.asked.Path)}
	var events []session.Event
	root := base.Root()
	if own {
		ex.mu.Lock()
		ex.alias(st.s, base)
		ex.mu.Unlock()
	} else {
		events = slices.Collect(base.Pending())
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
		h.parent = ex.owner(st.asked.Path).home
	}
	return ex.claim(st.ctx, st.asked.Path, key, root, open, events, h)
}

// rebase returns s on top of the commit that holds its pending edits, or the
// first of them, if a step committed those. ex.mu is held.
func (ex *Execution) rebase(s session.Session) session.Session {
	if len(ex.same) == 0 || s.PendingDigest() == "" {
		return s
	}
	edits := slices.Collect(s.Pending())
	prefix, base, done := s.Committed(), s, 0
	for i, e := range edits {
		prefix = edit(prefix, e)
		if committed, ok := ex.same[sameKey{s.Ref(), prefix.PendingDigest()}]; ok {
			base, done = committed, i+1
		}
	}
	if done == 0 {
		return s
	}
	for _, e := range edits[done:] {
		base = edit(base, e)
	}
	return base
}

// alias remembers that an author's value with pending edits is now committed.
func (ex *Execution) alias(s, committed session.Session) {
	if d := s.PendingDigest(); d != "" {
		if ex.same == nil {
			ex.same = map[sameKey]session.Session{}
		}
		ex.same[sameKey{s.Ref(), d}] = committed
	}
}

// claim takes a session that this run made. On a later attempt it also brings
// what that session's log recorded.
func (ex *Execution) claim(ctx context.Context, path run.Path, k session.Key, root session.ID, open session.Opening, events []session.Event, h *heldSession) (session.Session, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	var g *run.Granted
	var err error
	if h.outer = ex.outer(path); h.outer {
		g, err = ex.rt.Values.Recorded(bounded, k, ex.owner(path).run)
	} else {
		g, err = ex.rt.Store.Claim(bounded, run.Claim{
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
	ex.journal.Merge(g.Journal)
	h.version, h.closed = g.Base.Ref().Version, g.Session.Closing().State
	if l, ok := g.Base.Link(); ok {
		h.link = l
	}
	if ex.held[k] == nil && !h.outer {
		ex.born = append(ex.born, k)
	}
	ex.held[k] = h
	if ex.rt.Values != nil {
		ex.rt.Values.Keep(g.Base)
	}
	return g.Base, nil
}

// Reject ends a branch that this run made, for a reason that people will read.
func Reject(ctx context.Context, branch session.Session, reason string) error {
	sc, err := scopeOf(ctx)
	if err != nil {
		return err
	}
	path, err := sc.enter()
	if err != nil {
		return err
	}
	defer sc.release()
	ex := sc.ex
	if err := ex.mayDispose(path, branch.Key()); err != nil {
		return err
	}
	return ex.failed(ex.dispose(ctx, path, branch.Key(), session.ClosedRejected, reason))
}

func (ex *Execution) mayDispose(path run.Path, k session.Key) error {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	h := ex.held[k]
	switch {
	case h == nil || k == ex.home || k == ex.owner(path).home:
		return fmt.Errorf("flow: session %s is no branch of this run: only what flow.Fork returned can be adopted or rejected", k.ID)
	case h.disposed:
		return fmt.Errorf("flow: branch %s was adopted or rejected before", k.ID)
	}
	return nil
}

// dispose records in the parent how a branch ended, then closes the branch.
func (ex *Execution) dispose(ctx context.Context, path run.Path, k session.Key, state, reason string) error {
	ex.mu.Lock()
	h := ex.held[k]
	link, parent := h.link, h.parent
	if ex.held[parent] == nil || ex.held[parent].closed != "" || ex.held[parent].disposed {
		parent = ex.owner(path).home
	}
	h.disposed = true
	ex.mu.Unlock()
	st := &step{ex: ex, ctx: ctx, log: parent}
	st.asked = run.Asked{Path: path, Kind: run.StepReject, Name: state, Input: inputDigest(session.Session{}, []string{string(k.ID), reason})}
	if err := st.decide(); err != nil {
		return err
	}
	if st.decision != run.Replay {
		rejection := session.RejectedEvent(session.Rejection{Branch: link, Reason: clip(reason, 1<<10), State: state})
		if _, err := st.commit(run.Done{Links: []session.Link{link}, Summary: clip(reason, 200)}, rejection); err != nil {
			return err
		}
	}
	return ex.close(ctx, k, session.Closing{By: parent, Reason: clip(reason, 1<<10), State: state})
}

// close ends a branch in its own log, unless that says so already.
func (ex *Execution) close(ctx context.Context, k session.Key, c session.Closing) error {
	ex.mu.Lock()
	h := ex.held[k]
	done := h.closed != "" || h.outer
	h.disposed = true
	ex.mu.Unlock()
	if done {
		return nil
	}
	if _, err := ex.commit(ctx, k, session.Session{}, "", nil, session.ClosedEvent(c)); err != nil {
		return err
	}
	ex.mu.Lock()
	h.closed = c.State
	ex.mu.Unlock()
	return nil
}

// Adopt moves trunk to what a branch became: it returns trunk's next version,
// with the branch's chunks and files. The branch ends.
func Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error) {
	st, err := begin(ctx, run.StepJoin, session.JoinAdopt, trunk, true, "", branch.Ref().String(), branch.PendingDigest(), reason)
	if err != nil {
		return trunk, err
	}
	defer st.end()
	if err := st.ex.mayDispose(st.asked.Path, branch.Key()); err != nil {
		return trunk, st.fail(err)
	}
	s, err := st.ex.adopt(st, branch, session.JoinAdopt, reason)
	if err != nil {
		return trunk, st.fail(err)
	}
	return s, nil
}

func (ex *Execution) adopt(st *step, branch session.Session, policy, reason string) (session.Session, error) {
	var joined session.Session
	branch, err := ex.flush(st.ctx, st.asked.Path, branch)
	if err != nil {
		return st.s, err
	}
	if st.decision == run.Replay {
		joined = st.record.Session
	} else {
		join, err := session.JoinOf(st.s, policy, reason, 0, branch)
		if err != nil {
			return st.s, err
		}
		link, _ := branch.Link()
		ack, err := st.commit(run.Done{Links: []session.Link{link}, Summary: clip(reason, 200)}, session.JoinedEvent(join))
		if err != nil {
			return st.s, err
		}
		joined = ack.Session
	}
	return joined, ex.close(st.ctx, branch.Key(), session.Closing{By: st.log, Reason: clip(reason, 1<<10), State: session.ClosedAdopted})
}

// flush commits the pending edits of a branch, so that others can refer to it.
func (ex *Execution) flush(ctx context.Context, path run.Path, s session.Session) (session.Session, error) {
	if s.PendingDigest() == "" {
		return s, nil
	}
	st := &step{ex: ex, ctx: ctx, s: s, log: s.Key()}
	st.asked = run.Asked{Path: path.Child("commit"), Kind: run.StepDo, Name: "commit", Input: inputDigest(s, nil)}
	if err := st.decide(); err != nil {
		return s, err
	}
	if st.decision == run.Replay {
		return st.record.Session, nil
	}
	ack, err := st.commit(run.Done{})
	return ack.Session, err
}

// adoptResult makes a branch that Forward returned the home session's next
// version.
func (ex *Execution) adoptResult(ctx context.Context, s session.Session) (session.Session, error) {
	ex.mu.Lock()
	h := ex.held[ex.home]
	link := h.link
	ex.mu.Unlock()
	trunk, err := ex.rt.value(ctx, link.Ref)
	if err != nil {
		return s, err
	}
	policy, reason := session.JoinAdopt, "returned by the workflow"
	if _, _, ok := session.CommonLen(trunk, s); !ok {
		policy = session.JoinReplace // a summary or a concatenation goes on as this session
	}
	st := &step{ex: ex, ctx: ctx, s: trunk, log: ex.home}
	st.asked = run.Asked{Path: "end.adopt", Kind: run.StepJoin, Name: policy, Input: inputDigest(session.Session{}, []string{s.Ref().String(), s.PendingDigest()})}
	if err := st.decide(); err != nil {
		return s, err
	}
	joined, err := ex.adopt(st, s, policy, reason)
	if err != nil {
		return s, err
	}
	for r := range s.Line() { // the branches it came through are part of it
		ex.mu.Lock()
		mid := ex.held[r.Key]
		ex.mu.Unlock()
		if mid != nil && r.Key != ex.home && !mid.disposed {
			if err := ex.close(ctx, r.Key, session.Closing{By: ex.home, Reason: reason, State: session.ClosedAdopted}); err != nil {
				return s, err
			}
		}
	}
	return joined, nil
}

// Concatenate joins two sessions, which need not be related, into a new one:
// the chunks of a, then those of b, with a's placement. Both stay as they are.
// If one of them is quarantined the run needs review, as with [Merge].
func Concatenate(ctx context.Context, a, b session.Session) (session.Session, error) {
	st, err := begin(ctx, run.StepJoin, session.JoinConcatenate, session.Session{}, false, "",
		a.Ref().String(), a.PendingDigest(), b.Ref().String(), b.PendingDigest())
	if err != nil {
		return a, err
	}
	defer st.end()
	ex := st.ex
	parts := []session.Session{a, b}
	for i := range parts {
		if !ex.holds(st.asked.Path, parts[i].Key()) {
			continue
		}
		if parts[i], err = ex.flush(ctx, st.asked.Path.Index(i), parts[i]); err != nil {
			return a, st.fail(err)
		}
	}
	join, err := session.JoinOf(session.Session{}, session.JoinConcatenate, "", 0, parts...)
	if err != nil {
		return a, st.fail(err)
	}
	owner := ex.owner(st.asked.Path)
	key := session.Key{Tenant: ex.home.Tenant, ID: ex.rt.Mint.Child(ex.home.Tenant, string(owner.run), string(st.asked.Path))}
	links := make([]session.Link, 0, len(parts))
	for _, p := range join.Parents {
		if p.Link.Tenant != ex.home.Tenant {
			return a, st.fail(fmt.Errorf("flow: concatenate %s: %w", p.Link.Key, session.ErrTenant))
		}
		links = append(links, p.Link)
	}
	if st.decision != run.Replay {
		for _, l := range links {
			if err := st.mayTake("", l.Key); err != nil {
				return a, st.fail(err)
			}
		}
		if _, err := st.commit(run.Done{Links: append([]session.Link{{Ref: session.Ref{Key: key}}}, links...), Summary: "concatenates two sessions"}); err != nil {
			return a, st.fail(err)
		}
	}
	open := session.Opening{Kind: session.OpenMerge, Parents: links, Run: string(owner.run), Step: string(st.asked.Path)}
	s, err := ex.claim(ctx, st.asked.Path, key, ex.input.Root(), open, []session.Event{session.JoinedEvent(join)}, &heldSession{parent: owner.home})
	if err != nil {
		return a, st.fail(err)
	}
	return s, nil
}
