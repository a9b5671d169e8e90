package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/excerpt"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// Reject is flow.Reject.
func (p *place) Reject(ctx context.Context, branch session.Session, reason string) error {
	sc, path, err := enter(&p.spot, journal.StepRequest{Kind: "the end of a branch"})
	if err != nil {
		return err
	}
	defer sc.release()
	ex := sc.ex
	if err := ex.joins.mayDispose(path, branch.Key()); err != nil {
		return err
	}
	return ex.failed(ex.joins.dispose(ctx, path, branch.Key(), session.ClosedRejected, reason))
}

func (j *joins) mayDispose(path run.Path, k session.Key) error {
	ex := j.ex
	ex.mu.Lock()
	defer ex.mu.Unlock()
	h := ex.sessions.held[k]
	switch {
	case h == nil || k == ex.home || k == ex.levels.owner(path).home || foreign(ex, path, k, h):
		return fmt.Errorf("flow: session %s is not a branch of this run, or an iteration of a loop did not make it: only a result of flow.Fork can be adopted or rejected", k.ID)
	case h.disposed:
		return fmt.Errorf("flow: branch %s was adopted or rejected before", k.ID)
	}
	return nil
}

// dispose records the outcome of a branch in the parent, then closes the branch.
func (j *joins) dispose(ctx context.Context, path run.Path, k session.Key, state, reason string) error {
	ex := j.ex
	ex.mu.Lock()
	h := ex.sessions.held[k]
	link, parent := h.link, h.parent
	if ex.sessions.held[parent] == nil || ex.sessions.held[parent].closed != "" || ex.sessions.held[parent].disposed {
		parent = ex.levels.owner(path).home
	}
	h.disposed = true
	ex.mu.Unlock()
	st, err := ex.substep(ctx, parent, session.Session{}, journal.StepRequest{
		Path: path, Kind: journal.StepReject, Name: state, Input: j.ex.sessions.inputDigest(session.Session{}, []string{string(k.ID), reason}),
	})
	if err != nil {
		return err
	}
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		st.content = []session.Event{commitlog.RejectedEvent(commitlog.Rejection{Branch: link, Reason: excerpt.Clip(reason, 1<<10), State: state})}
		if journal.Warns(reason) {
			e, err := journal.NewEvent(journal.KindWarning, journal.Warning{Run: ex.id, Text: excerpt.Clip(reason, 1<<10)})
			if err != nil {
				return d, err
			}
			st.content = append(st.content, e)
		}
		return journal.StepCompleted{Links: []session.Link{link}, Summary: excerpt.Clip(reason, 200)}, nil
	}); err != nil {
		return err
	}
	return j.close(ctx, k, session.Closing{By: parent, Reason: excerpt.Clip(reason, 1<<10), State: state})
}

// close ends a branch in its own log, unless that log has its end already.
func (j *joins) close(ctx context.Context, k session.Key, c session.Closing) error {
	ex := j.ex
	ex.mu.Lock()
	h := ex.sessions.held[k]
	done := h.closed != "" || h.outer
	h.disposed = true
	ex.mu.Unlock()
	if done {
		return nil
	}
	if _, err := ex.log.commit(ctx, k, session.Session{}, "", nil, session.ClosedEvent(c)); err != nil {
		return err
	}
	ex.mu.Lock()
	h.closed = c.State
	ex.mu.Unlock()
	return nil
}

// Adopt is flow.Adopt.
func (p *place) Adopt(ctx context.Context, trunk, branch session.Session, reason string) (session.Session, error) {
	st, err := p.begin(ctx, journal.StepJoin, session.JoinAdopt, trunk, true, "", branch.Ref().String(), branch.PendingDigest(), reason)
	if err != nil {
		return trunk, err
	}
	defer st.end()
	if err := st.ex.joins.mayDispose(st.asked.Path, branch.Key()); err != nil {
		return trunk, st.fail(err)
	}
	s, err := st.ex.joins.adopt(st, branch, session.JoinAdopt, reason)
	if err != nil {
		return trunk, st.fail(err)
	}
	return s, nil
}

func (j *joins) adopt(st *step, branch session.Session, policy, reason string) (session.Session, error) {
	branch, err := j.flush(st.ctx, st.asked.Path, branch)
	if err != nil {
		return st.s, err
	}
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		join, err := session.JoinOf(st.s, policy, reason, 0, branch)
		if err != nil {
			return d, err
		}
		link, _ := branch.Link()
		st.content = []session.Event{session.JoinedEvent(join)}
		return journal.StepCompleted{Links: []session.Link{link}, Summary: excerpt.Clip(reason, 200)}, nil
	}); err != nil {
		return st.s, err
	}
	return st.after, j.close(st.ctx, branch.Key(), session.Closing{By: st.log, Reason: excerpt.Clip(reason, 1<<10), State: session.ClosedAdopted})
}

// flush commits the pending edits of a session, so that others can refer to it. It makes
// a step below path for each batch of them. Edits of a session of a run around this one go
// to a fork.
func (j *joins) flush(ctx context.Context, path run.Path, s session.Session) (session.Session, error) {
	at := journal.CommitPath(path)
	if s.PendingDigest() != "" && j.ex.forks.around(at, s.Key()) {
		var err error
		if s, err = j.ex.forks.own(ctx, at, s, true); err != nil {
			return s, err
		}
	}
	batches := slices.Collect(commitlog.Batches(slices.Collect(s.Pending())))
	for i, edits := range batches {
		asked := at
		if len(batches) > 1 {
			asked = at.Index(i)
		}
		pending := s.Committed().Edited(edits...)
		st, err := j.ex.substep(ctx, s.Key(), pending, journal.StepRequest{Path: asked, Kind: journal.StepDo, Name: "commit", Input: j.ex.sessions.inputDigest(pending, nil)})
		if err != nil {
			return s, err
		}
		if err := st.make(nil, func() (d journal.StepCompleted, err error) { return d, nil }); err != nil {
			return s, err
		}
		s = st.after
	}
	return s, nil
}

// shorten flushes the session of a step whose pending edits do not fit into the step's
// own commit. asked is the author's value of the session.
func (st *step) shorten(asked session.Session) error {
	if _, rest := firstBatch(slices.Collect(st.s.Pending())); len(rest) == 0 {
		return nil
	}
	s, err := st.ex.joins.flush(st.ctx, st.asked.Path, st.s)
	if err != nil {
		return err
	}
	st.ex.mu.Lock()
	defer st.ex.mu.Unlock()
	st.ex.sessions.alias(st.s, s)
	st.ex.sessions.alias(asked, s)
	st.s = s
	return nil
}

// adoptResult makes a branch that Forward returned the home session's next
// version.
func (j *joins) adoptResult(ctx context.Context, s session.Session) (session.Session, error) {
	ex := j.ex
	ex.mu.Lock()
	h := ex.sessions.held[ex.home]
	link := h.link
	ex.mu.Unlock()
	trunk, err := ex.rt.Values.At(ctx, link.Ref)
	if err != nil {
		return s, err
	}
	policy, reason := session.JoinAdopt, "returned by the workflow"
	if _, _, ok := session.CommonLen(trunk, s); !ok {
		policy = session.JoinReplace // a summary or a concatenation continues this session
	}
	st, err := ex.substep(ctx, ex.home, trunk, journal.StepRequest{
		Path: "end.adopt", Kind: journal.StepJoin, Name: policy, Input: j.ex.sessions.inputDigest(session.Session{}, []string{s.Ref().String(), s.PendingDigest()}),
	})
	if err != nil {
		return s, err
	}
	joined, err := j.adopt(st, s, policy, reason)
	if err != nil {
		return s, err
	}
	for r := range s.Line() { // the branches in its line are part of it
		ex.mu.Lock()
		mid := ex.sessions.held[r.Key]
		ex.mu.Unlock()
		if mid != nil && r.Key != ex.home && !mid.disposed {
			if err := j.close(ctx, r.Key, session.Closing{By: ex.home, Reason: reason, State: session.ClosedAdopted}); err != nil {
				return s, err
			}
		}
	}
	return joined, nil
}

// Concatenate is flow.Concatenate.
func (p *place) Concatenate(ctx context.Context, a, b session.Session) (session.Session, error) {
	st, err := p.begin(ctx, journal.StepJoin, session.JoinConcatenate, session.Session{}, false, "",
		a.Ref().String(), a.PendingDigest(), b.Ref().String(), b.PendingDigest())
	if err != nil {
		return a, err
	}
	defer st.end()
	ex := st.ex
	parts := []session.Session{a, b}
	for i := range parts {
		if !ex.forks.holds(st.asked.Path, parts[i].Key()) {
			continue
		}
		if parts[i], err = ex.joins.flush(ctx, st.asked.Path.Index(i), parts[i]); err != nil {
			return a, st.fail(err)
		}
	}
	join, err := session.JoinOf(session.Session{}, session.JoinConcatenate, "", 0, parts...)
	if err != nil {
		return a, st.fail(err)
	}
	key := ex.forks.child(st.asked.Path)
	links := make([]session.Link, 0, len(parts))
	for _, p := range join.Parents {
		if p.Link.Tenant != ex.home.Tenant {
			return a, st.fail(fmt.Errorf("flow: concatenate %s: %w", p.Link.Key, session.ErrTenant))
		}
		links = append(links, p.Link)
	}
	if err := st.make(nil, func() (d journal.StepCompleted, err error) {
		for _, l := range links {
			if err := ex.values.notArchived(st.ctx, st.asked.Path, l.Key); err != nil {
				return d, fmt.Errorf("flow: concatenate %s: %w", l.Ref, err)
			}
			if err := st.mayTake("", l.Key); err != nil {
				return d, err
			}
		}
		return journal.StepCompleted{Links: append([]session.Link{{Ref: session.Ref{Key: key}}}, links...), Summary: "concatenates two sessions"}, nil
	}); err != nil {
		return a, st.fail(err)
	}
	h := &heldSession{parent: ex.levels.owner(st.asked.Path).home}
	s, err := ex.forks.claim(ctx, key, ex.input.Root(), st.opening(session.OpenMerge, links...), []session.Event{session.JoinedEvent(join)}, h)
	if err != nil {
		return a, st.fail(err)
	}
	return s, nil
}
