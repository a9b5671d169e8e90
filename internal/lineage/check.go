package lineage

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rathcluster/rath/session"
)

// The kinds of problems that [Graph.Check] finds.
const (
	MissingParent  = "missing_parent"  // a parent session of which there is no record
	MissingCommits = "missing_commits" // commits of a session without a record
	OtherHash      = "other_hash"      // a reference names another commit than the parent's records
	Conflict       = "conflict"        // two records differ for one event
	Cycle          = "cycle"           // a session is its own ancestor
)

// Problem is something about the records that cannot be right, or that is not
// here yet: a graph that is still being filled lacks parents and commits.
type Problem struct {
	Kind    string      `json:"kind"`
	Session session.Key `json:"session"`
	Commit  uint64      `json:"commit,omitempty"`
	Text    string      `json:"text"`
}

// Check returns what is wrong with a tenant's part of the graph, sorted; none
// if it is whole, its references agree with the commits that they name, and
// it has no cycle.
func (g *Graph) Check(tenant session.Tenant) []Problem {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Problem
	add := func(kind string, k session.Key, commit uint64, format string, args ...any) {
		out = append(out, Problem{kind, k, commit, fmt.Sprintf(format, args...)})
	}
	for k, t := range g.sessions {
		if k.Tenant != tenant {
			continue
		}
		t.tidy()
		for at := range t.conflicts {
			add(Conflict, k, at.commit, "two records differ for event %d of commit %d of session %s", at.k, at.commit, k.ID)
		}
		if len(t.gaps) > 0 {
			add(MissingCommits, k, t.gaps[0], "session %s has no records of %d commits, the first is %d", k.ID, len(t.gaps), t.gaps[0])
		}
		for _, r := range t.records {
			for _, p := range r.Parents {
				up := g.sessions[session.Key{Tenant: k.Tenant, ID: p.Session}]
				if up == nil {
					add(MissingParent, k, r.Commit, "session %s comes from %s, of which there is no record", k.ID, p)
					continue
				}
				if h := up.hashOf(p.Commit); h != "" && p.Hash != "" && h != p.Hash {
					add(OtherHash, k, r.Commit, "session %s names commit %d of %s as %.8s, its record says %.8s", k.ID, p.Commit, p.Session, p.Hash, h)
				}
			}
		}
	}
	for _, k := range g.cycle(tenant) {
		add(Cycle, k, 0, "session %s is its own ancestor", k.ID)
	}
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Session.ID, b.Session.ID), cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return slices.Compact(out)
}

func (t *thread) hashOf(commit uint64) string {
	for _, r := range t.tidy().records {
		if r.Commit == commit {
			return r.Hash
		}
	}
	return ""
}

// cycle returns the sessions that lie on a cycle or come after one. Vertices
// are commits, because a branch that was forked from a session and merged
// back into it is no cycle; what has no parent left is taken away until
// nothing is (Kahn), without recursion.
func (g *Graph) cycle(tenant session.Tenant) []session.Key {
	type vertex struct {
		key    session.Key
		commit uint64
	}
	waits := map[vertex]int{}
	next := map[vertex][]vertex{}
	for k, t := range g.sessions {
		if k.Tenant != tenant {
			continue
		}
		last := vertex{}
		for _, r := range t.tidy().records {
			v := vertex{k, r.Commit}
			if v != last {
				waits[v] += 0
				if last != (vertex{}) {
					next[last] = append(next[last], v)
					waits[v]++
				}
				last = v
			}
			for _, p := range r.Parents {
				up := g.sessions[session.Key{Tenant: tenant, ID: p.Session}]
				if up == nil {
					continue
				}
				i := up.upTo(p.commit(up))
				if i < 0 {
					continue
				}
				from := vertex{up.key, up.records[i].Commit}
				next[from] = append(next[from], v)
				waits[v]++
			}
		}
	}
	var ready []vertex
	for v, n := range waits {
		if n == 0 {
			ready = append(ready, v)
		}
	}
	for len(ready) > 0 {
		v := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		for _, to := range next[v] {
			if waits[to]--; waits[to] == 0 {
				ready = append(ready, to)
			}
		}
		delete(waits, v)
	}
	found := map[session.Key]bool{}
	for v := range waits {
		found[v.key] = true
	}
	out := make([]session.Key, 0, len(found))
	for k := range found {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b session.Key) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
