package dossier

import (
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// reference is a link in a commit, or the name of a session that a step opened.
type reference struct {
	link   session.Link // Seq is 0 if only the session is named
	from   session.ID
	commit uint64
	needed bool // the target must exist: the fold needs it, or the run states that it exists
}

// references returns the references of a commit: the ones that every fold of the log
// needs and, for the runs, also the sessions that their steps opened and decided about.
func (c *chain) references(n uint64, runs family) []reference {
	var out []reference
	add := func(l session.Link, needed bool) {
		out = append(out, reference{l, c.key.ID, n, needed && l.Seq > 0})
	}
	named := func(id session.ID) {
		add(session.Link{Ref: session.Ref{Key: session.Key{Tenant: c.key.Tenant, ID: id}}}, false)
	}
	for _, e := range c.facts[n-1] {
		switch e.What.(type) {
		case session.Opening, session.Join: // the fold needs them, whichever run made them
		default:
			if !runs[e.Recorder()] {
				continue
			}
		}
		for _, l := range e.Links() {
			add(l, true)
		}
		switch p := e.What.(type) {
		case journal.Ended:
			for _, child := range p.Children {
				named(child)
			}
		case journal.FanOut:
			for _, b := range p.Branches {
				named(b.Session)
			}
		}
	}
	return out
}

// planned is a session of the evidence and its last required commit.
type planned struct {
	c    *chain
	upTo uint64
}

// plan returns the sessions of the evidence of a run, and its runs: the run itself and
// the branches of its fan-outs. The home session and the sessions that the runs made are
// required up to the last commit that concerns the runs, others up to the last commit
// that is referred to. source returns nil for a session that does not exist.
func plan(id run.ID, home session.Key, source func(session.Key) (*chain, error)) ([]planned, family, error) {
	runs := family{id: true}
	for {
		n := len(runs)
		all, err := planFor(runs, id, home, source)
		// A branch may have been met before the fan-out that opened it.
		if err != nil || len(runs) == n {
			return all, runs, err
		}
	}
}

// planFor is plan for the known runs; it adds the branches that it finds to runs.
func planFor(runs family, id run.ID, home session.Key, source func(session.Key) (*chain, error)) ([]planned, error) {
	type work struct {
		*planned
		done uint64
	}
	var all []*work
	byID := map[session.ID]*work{}
	need := func(r reference) error {
		k := r.link.Key
		if k.Tenant != home.Tenant {
			return fail(Foreign, r.from, r.commit, "it refers to session %s of another tenant", k)
		}
		w := byID[k.ID]
		if w == nil {
			c, err := source(k)
			if err != nil {
				return err
			}
			if c == nil {
				if r.needed {
					return fail(Missing, k.ID, 0, "commit %d of session %s refers to its commit %d", r.commit, r.from, r.link.Seq)
				}
				return nil // opened, but never written to
			}
			w = &work{planned: &planned{c: c}}
			// A run that was never claimed is in its home log alone.
			c.ours = c.claimed(runs) || (k == home || runs[run.ID(k.ID)]) && c.concerned(runs)
			for n := c.last(); c.ours && n > w.upTo; n-- {
				if c.concerns(n, runs) {
					w.upTo = n
				}
			}
			if !c.ours && r.link.Seq == 0 {
				return nil // named, but neither written to nor referred to
			}
			byID[k.ID] = w
			all = append(all, w)
		}
		if r.link.Seq == 0 {
			return nil
		}
		if r.link.Seq > w.c.last() {
			return fail(Cut, k.ID, w.c.last()+1, "the log ends before it, but commit %d of session %s refers to commit %d", r.commit, r.from, r.link.Seq)
		}
		if got := w.c.entries[r.link.Seq-1].At.Hash; got != r.link.Hash {
			return fail(Link, r.from, r.commit, "it names commit %d of session %s as %s, which is %s", r.link.Seq, k.ID, r.link.Hash, got)
		}
		w.upTo = max(w.upTo, r.link.Seq)
		return nil
	}
	if err := need(reference{link: session.Link{Ref: session.Ref{Key: home}}, from: home.ID}); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fail(Missing, home.ID, 0, "run %s is not in the log of session %s", id, home.ID)
	}
	for more := true; more; {
		more = false
		for i := 0; i < len(all); i++ {
			w := all[i]
			for w.done < w.upTo {
				w.done++
				more = true
				for _, e := range w.c.facts[w.done-1] {
					if f, ok := e.What.(journal.FanOut); ok && runs[f.Run] {
						for _, b := range f.Branches {
							runs[run.ID(b.Session)] = true
						}
					}
				}
				for _, r := range w.c.references(w.done, runs) {
					if err := need(r); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	out := make([]planned, len(all))
	for i, w := range all {
		out[i] = *w.planned
	}
	return out, nil
}
