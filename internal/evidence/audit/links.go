package audit

import (
	"fmt"
	"slices"
	"strings"
)

// claimOf is a reference to a commit of another log, and its position.
//
// The hash in a reference is of bytes that existed before the reference was
// written, and the commit with the reference has a hash of its own. A cycle of
// matching references would be a cycle of SHA-256, so that checking each reference
// against its commit also proves that the graph has no cycle.
type claimOf struct {
	from *log
	seq  uint64
	link link
	what string
	root string // required root of the other log; empty for any
}

// promise is the step that first announced a session.
type promise struct{ run, path string }

// link checks a reference, now or when its commit is read.
func (a *audit) link(c claimOf) {
	if c.link.Tenant != c.from.tenant {
		return // tenants reports it
	}
	k := key{c.link.Tenant, c.link.Session}
	if k == c.from.key && c.link.Seq >= c.seq {
		a.check(Graph, false, func() Violation {
			return c.from.says(c.seq, "", c.what+" to be an older commit", fmt.Sprintf("commit %d of the same session: a cycle", c.link.Seq))
		})
		return
	}
	l := a.logs[k]
	if l == nil || l.seq < c.link.Seq || c.link.Seq == 0 {
		a.links[k] = append(a.links[k], c)
		return
	}
	a.resolve(l, c)
}

// settleLinks checks the references that waited for the last commit of a log.
func (a *audit) settleLinks(l *log) {
	waiting := a.links[l.key]
	if len(waiting) == 0 {
		return
	}
	waiting = slices.DeleteFunc(waiting, func(c claimOf) bool {
		if c.link.Seq != l.seq {
			return false
		}
		a.resolve(l, c)
		return true
	})
	a.links[l.key] = waiting
	if len(waiting) == 0 {
		delete(a.links, l.key)
	}
}

func (a *audit) resolve(l *log, c claimOf) {
	m := l.at(c.link.Seq)
	if m == nil {
		return // before the beginning of a cut log, which is reported
	}
	name := fmt.Sprintf("commit %d of %s", c.link.Seq, l.id)
	a.check(Graph, m.hash == markOf(c.link.Hash), func() Violation {
		return c.from.says(c.seq, "", fmt.Sprintf("%s as %s, hash %x", name, c.what, m.hash[:4]), short(c.link.Hash))
	})
	low, high := l.before(c.link.Seq), uint64(m.version)
	a.check(Graph, c.link.Version >= low && c.link.Version <= high, func() Violation {
		return c.from.says(c.seq, "", fmt.Sprintf("version %d of %s as %s", high, name, c.what), fmt.Sprintf("version %d", c.link.Version))
	})
	if c.root != "" {
		a.check(Graph, c.root == l.root, func() Violation { return c.from.says(c.seq, "", "root "+l.root+" of its parent "+l.id, "root "+c.root) })
	}
}

// dispose records that a session decided the outcome of a branch.
func (a *audit) dispose(by *log, branch string) {
	k := key{by.tenant, by.id}
	if !slices.Contains(a.disposed[k], key{by.tenant, branch}) {
		a.disposed[k] = append(a.disposed[k], key{by.tenant, branch})
	}
}

// finishLinks reports references to missing commits.
func (a *audit) finishLinks() {
	for k, waiting := range a.links {
		l := a.logs[k]
		for _, c := range waiting {
			if a.purgedLink(l, c) || a.incomplete(c.from) {
				continue
			}
			if a.o.Open && c.link.Seq > 0 {
				continue // the commit may have been written after the streams were read
			}
			a.check(Graph, false, func() Violation {
				found := "no such session"
				if l != nil {
					found = fmt.Sprintf("%d commits", l.seq)
				}
				return c.from.says(c.seq, "", fmt.Sprintf("commit %d of %s, %s", c.link.Seq, k.id, c.what), found)
			})
		}
	}
	for k, l := range a.logs {
		a.finishOpening(k, l)
		a.finishClosing(l)
	}
}

// finishOpening checks that a step of another log announced the session before it was
// opened.
func (a *audit) finishOpening(k key, l *log) {
	if l.opened.Step == "" || l.branch != "" || a.incomplete(l) {
		return
	}
	p, ok := a.promised[k]
	if !ok && a.o.Open {
		return
	}
	a.check(Graph, ok && p.run == l.opened.Run && p.path == l.opened.Step, func() Violation {
		found := "no step that makes the session"
		if ok {
			found = "step " + p.path + " of run " + p.run
		}
		return l.says(1, l.opened.Run, "step "+l.opened.Step+" of the run that opened it", found)
	})
}

// finishClosing checks that the session that closed another one recorded this, for that
// session or a descendant of it.
func (a *audit) finishClosing(l *log) {
	if l.closed == nil || l.closed.By.Session == "" || a.incomplete(l) {
		return
	}
	ok := slices.ContainsFunc(a.disposed[key{l.tenant, l.closed.By.Session}], func(k key) bool { return a.cameOf(k, l.key) })
	if !ok && a.o.Open {
		return
	}
	a.check(Graph, ok, func() Violation {
		return l.says(l.seq, "", "session "+l.closed.By.Session+" to record that the branch was "+l.closed.State, "nothing of it there")
	})
}

// cameOf reports whether a session is another one or descends from it.
func (a *audit) cameOf(k, from key) bool {
	for range len(a.logs) + 1 {
		if k == from {
			return true
		}
		l := a.logs[k]
		if l == nil || len(l.opened.Parents) != 1 || l.opened.Parents[0].Tenant != k.tenant {
			return false
		}
		k = key{k.tenant, l.opened.Parents[0].Session}
	}
	return false
}

// finishBranches checks that the branches of trees without open runs have ended, and
// checks the branches of fan-outs.
func (a *audit) finishBranches() {
	a.finishParts()
	a.finishFanOuts()
	finishStarted(a)
	busy := map[key]bool{} // trees with an open run
	for _, g := range a.runs {
		if g.home != nil && g.end == nil {
			busy[key{g.tenant, g.home.root}] = true
		}
	}
	if a.o.Open {
		return
	}
	for _, l := range a.logs {
		branch := l.branch != "" || l.opened.Step != "" && (l.opened.Kind == "fork" || l.opened.Kind == "implicit" || l.opened.Kind == "call")
		if !branch || a.incomplete(l) || busy[key{l.tenant, l.root}] || strings.Contains(l.opened.Kind, "detach") {
			continue
		}
		a.check(Graph, l.closed != nil, func() Violation {
			return l.says(l.seq, l.opened.Run, "session.closed, since all runs of tree "+l.root+" have ended", "an open branch")
		})
	}
}
