package dossier

import (
	"math"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// check verifies properties beyond the hash chains: every reference finds its commit,
// every session and commit is referenced, each session follows the rules of a log, and
// parents and branches agree.
func (a *archive) check() error {
	want, runs, err := plan(a.run, a.home, func(k session.Key) (*chain, error) { return a.byID[k.ID], nil })
	if err != nil {
		return err
	}
	a.runs = runs
	wanted := map[session.ID]bool{}
	for _, p := range want {
		id := p.c.key.ID
		wanted[id] = true
		if last := p.c.last(); p.upTo < last {
			return fail(Foreign, id, p.upTo+1, "it tells nothing of run %s, and nothing refers to it", a.run)
		}
	}
	for _, c := range a.logs {
		if !wanted[c.key.ID] {
			return fail(Foreign, c.key.ID, 1, "nothing of run %s refers to the session", a.run)
		}
	}
	for i, p := range want {
		if a.logs[i] != p.c {
			return fail(Malformed, a.logs[i].key.ID, 0, "the sessions are not in the order in which they refer to each other")
		}
	}
	for _, c := range a.logs {
		if _, err := a.stateOf(c, c.last()); err != nil {
			return err
		}
	}
	return a.dispositions()
}

// rowLimit is the maximum number of rows that a session may state.
const rowLimit = math.MaxInt32

// stateOf returns the state of a session after its commit n.
func (a *archive) stateOf(c *chain, n uint64) (state, error) {
	for uint64(len(c.states)) < n {
		if c.busy {
			return state{}, fail(Inconsistent, c.key.ID, n, "it refers to itself")
		}
		c.busy = true
		s, err := a.fold(c, uint64(len(c.states)+1), 0)
		c.busy = false
		if err != nil {
			return state{}, err
		}
		c.states = append(c.states, s)
	}
	return c.states[n-1], nil
}

// fold folds commit n, up to version limit unless that is zero.
func (a *archive) fold(c *chain, n uint64, limit session.Version) (s state, err error) {
	if n > 1 {
		s = c.states[n-2]
	}
	for i, e := range c.facts[n-1] {
		if limit != 0 && s.version >= limit && session.IsContent(e.Kind) {
			return s, nil
		}
		switch p := e.What.(type) {
		case session.Opening:
			if s.opened || s.version != 0 {
				return s, fail(Inconsistent, c.key.ID, n, "event %d opens a session that is open", i)
			}
			if s, err = a.opening(c, n, p); err != nil {
				return s, err
			}
		case session.Chunk:
			s.version++
			s.rows++
			if at := p.Origin().Placement; at.Backend != "" {
				s.placement = at
			}
		case session.Placement:
			s.version++
			s.placement = p
		case session.Join:
			if s, err = a.join(c, n, s, p); err != nil {
				return s, err
			}
		case session.Closing:
			s.closed = true
			continue
		}
		if s.closed && session.IsContent(e.Kind) {
			return s, fail(Inconsistent, c.key.ID, n, "event %d follows the end of the session", i)
		}
	}
	return s, nil
}

// named returns the state that a link names.
func (a *archive) named(c *chain, n uint64, l session.Link) (state, error) {
	p := a.byID[l.ID]
	if p == nil || l.Seq == 0 || l.Seq > p.last() || l.Tenant != c.key.Tenant {
		return state{}, fail(Link, c.key.ID, n, "it refers to commit %d of session %s, which is not there", l.Seq, l.ID)
	}
	s, err := a.stateOf(p, l.Seq)
	if err != nil {
		return s, err
	}
	if s.version > l.Version { // the commit holds more than one step
		if s, err = a.fold(p, l.Seq, l.Version); err != nil {
			return s, err
		}
	}
	if s.version != l.Version {
		return s, fail(Link, c.key.ID, n, "it refers to version %d of session %s, commit %d made version %d", l.Version, l.ID, l.Seq, s.version)
	}
	return s, nil
}

func (a *archive) opening(c *chain, n uint64, o session.Opening) (s state, err error) {
	switch o.Kind {
	case session.OpenFork, session.OpenImplicit, session.OpenDetach:
		if len(o.Parents) != 1 {
			return s, fail(Inconsistent, c.key.ID, n, "a %s of %d parents", o.Kind, len(o.Parents))
		}
		if s, err = a.named(c, n, o.Parents[0]); err != nil {
			return s, err
		}
		if root := a.byID[o.Parents[0].ID].entries[0].Commit.Root; o.Kind != session.OpenDetach && root != c.entries[0].Commit.Root {
			return s, fail(Inconsistent, c.key.ID, n, "its root is %s, that of its parent %s", c.entries[0].Commit.Root, root)
		}
	case session.OpenLeaf, session.OpenMerge, session.OpenCompress, session.OpenImport, session.OpenCall:
	default:
		return s, fail(Release, c.key.ID, n, "unknown opening %q", o.Kind)
	}
	s.opened, s.closed = true, false
	return s, nil
}

func (a *archive) join(c *chain, n uint64, s state, j session.Join) (state, error) {
	if j.Policy == session.JoinReplace {
		s.rows = 0
	}
	for _, part := range j.Parents {
		p, err := a.named(c, n, part.Link)
		if err != nil {
			return s, err
		}
		if part.From < 0 || part.To < part.From || part.To > p.rows {
			return s, fail(Inconsistent, c.key.ID, n, "it takes rows %d to %d of session %s, which has %d", part.From, part.To, part.Link.ID, p.rows)
		}
		if s.rows += part.To - part.From; s.rows > rowLimit {
			return s, fail(Inconsistent, c.key.ID, n, "the session would have more than %d rows", rowLimit)
		}
	}
	s.version++
	if j.Placement.Backend != "" {
		s.placement = j.Placement
	}
	return s, nil
}

// disposition is the outcome of a branch in its parent's log.
type disposition struct {
	state, reason string
	by            session.ID
	commit        uint64
	implied       bool // the branch is an ancestor of a joined one
	named         bool // the run that opened the branch recorded it
}

// decided returns the outcomes of branches in their parents' logs.
func (a *archive) decided() map[session.ID]disposition {
	out := map[session.ID]disposition{}
	put := func(id session.ID, d disposition) {
		if old, ok := out[id]; !ok || old.implied && !d.implied || d.named && !old.named {
			out[id] = d
		}
	}
	for _, c := range a.logs {
		for i, facts := range c.facts {
			for _, e := range facts {
				if end, ok := e.What.(journal.Ended); ok {
					for _, id := range end.Children { // the end of a run cancels its open forks
						if child := a.byID[id]; child != nil {
							if cl, n := child.closing(); n > 0 && cl.State == session.ClosedCancelled {
								put(id, disposition{state: cl.State, reason: cl.Reason, by: c.key.ID, commit: uint64(i + 1), implied: true})
							}
						}
					}
				}
				for _, o := range e.Outcomes() {
					d := disposition{state: o.State, reason: o.Reason, by: c.key.ID, commit: uint64(i + 1)}
					switch e.What.(type) {
					case journal.BranchOutcomes, journal.Ended:
						d.named = true
					}
					put(o.Session, d)
					if _, joins := e.What.(session.Join); !joins {
						continue
					}
					d.implied = true
					for _, up := range a.line(o.Session) {
						if up == c.key.ID {
							break
						}
						put(up, d)
					}
				}
			}
		}
	}
	return out
}

// line returns the sessions that a branch was forked from, nearest first.
func (a *archive) line(id session.ID) (up []session.ID) {
	for range a.logs {
		c := a.byID[id]
		if c == nil {
			break
		}
		o, ok := c.opening()
		if !ok || len(o.Parents) != 1 || o.Kind != session.OpenFork && o.Kind != session.OpenImplicit {
			break
		}
		id = o.Parents[0].ID
		up = append(up, id)
	}
	return up
}

// dispositions checks that the ends of branches agree with their parents.
func (a *archive) dispositions() error {
	decided := a.decided()
	succeeded := a.ended() == run.Succeeded
	for _, c := range a.logs {
		if !c.ours || c.key.ID == a.home.ID {
			continue
		}
		d, told := decided[c.key.ID]
		cl, n := c.closing()
		switch {
		case n > 0 && told && d.state != cl.State:
			return fail(Inconsistent, c.key.ID, n, "it ends the branch as %s, commit %d of session %s says %s", cl.State, d.commit, d.by, d.state)
		case n > 0 && !told && a.byID[cl.By.ID] != nil:
			return fail(Inconsistent, c.key.ID, n, "it ends the branch as %s by session %s, whose log does not say so", cl.State, cl.By.ID)
		case n == 0 && told && !d.implied && succeeded && a.branch(c):
			return fail(Cut, c.key.ID, c.last()+1, "the log ends before it, but commit %d of session %s ended the branch as %s", d.commit, d.by, d.state)
		}
	}
	return nil
}

// branch reports whether the run forked the session, so that its end must be recorded.
// The end of a branch of a fan-out is recorded later.
func (a *archive) branch(c *chain) bool {
	o, ok := c.opening()
	return ok && !a.runs[run.ID(c.key.ID)] && run.ID(o.Run) == a.run && (o.Kind == session.OpenFork || o.Kind == session.OpenImplicit)
}

// closing returns the closing of a session, and the commit that records it.
func (c *chain) closing() (session.Closing, uint64) {
	for i, facts := range c.facts {
		for _, e := range facts {
			if cl, ok := e.What.(session.Closing); ok {
				return cl, uint64(i + 1)
			}
		}
	}
	return session.Closing{}, 0
}

// ended returns the final state of the run, "" for an open one.
func (a *archive) ended() run.State {
	for _, facts := range a.logs[0].facts {
		for _, e := range facts {
			if v, ok := e.What.(journal.Ended); ok && v.Run == a.run {
				return v.State
			}
		}
	}
	return ""
}
