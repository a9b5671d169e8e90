package lineage

import (
	"cmp"
	"slices"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// Heads returns the records that moved the workspace head on the path to a version of a
// session, oldest first. The path leads through the ancestors that the session was opened
// from and, where a branch's files were adopted, through that branch: concurrent changes
// of the trunk to its own files are not part of it. HeadFrom of each record is the Head of
// the previous one. Version zero is the latest.
func (g *Graph) Heads(k session.Key, v session.Version) ([]messages.Record, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, err := g.index.history(k)
	if err != nil {
		return nil, err
	}
	type place struct {
		key session.Key
		i   int
	}
	seen := map[place]bool{} // ends the path in a graph with a cycle
	var out []messages.Record
	for i := t.upTo(t.commitOf(v)); i >= 0 && !seen[place{t.key, i}]; {
		seen[place{t.key, i}] = true
		r := t.records[i]
		i--
		switch {
		case (r.Kind == messages.KindAdopted || r.Kind == messages.KindMerged) && r.Head != "":
			from, ok := g.index.filesFrom(t.key.Tenant, r)
			if !ok {
				out = append(out, *t.record(i + 1))
				continue
			}
			t = g.index.sessions[session.Key{Tenant: k.Tenant, ID: from.Session}]
			i = t.upTo(commitOfRef(from, t))
		case opens(r.Kind) && r.Commit == 1 && len(r.Parents) > 0:
			up := g.index.sessions[session.Key{Tenant: k.Tenant, ID: r.Parents[0].Session}]
			if up == nil || r.Kind == messages.KindConcatenated {
				continue
			}
			t, i = up, up.upTo(commitOfRef(r.Parents[0], up))
		case r.Head != "" && r.Head != r.HeadFrom && movesHead(r.Kind):
			out = append(out, *t.record(i + 1))
		}
	}
	slices.Reverse(out)
	return chainHeads(out), nil
}

// movesHead reports whether records of a kind are changes of files. Rows only repeat the
// session's head.
func movesHead(k messages.Kind) bool {
	return k == messages.KindTool || k == messages.KindDid || k == messages.KindPlaced
}

// filesFrom returns the parent whose files a join adopted.
func (g *index) filesFrom(tenant session.Tenant, r *messages.Record) (messages.Ref, bool) {
	for _, p := range r.Parents {
		t := g.sessions[session.Key{Tenant: tenant, ID: p.Session}]
		if t == nil || p.Session == r.Session {
			continue
		}
		t.tidy()
		for i := t.upTo(commitOfRef(p, t)); i >= 0; i-- {
			if h := t.records[i].Head; h == r.Head {
				return p, true
			} else if h != "" {
				break
			}
		}
	}
	if len(r.Parents) == 1 && r.Parents[0].Session != r.Session && g.sessions[session.Key{Tenant: tenant, ID: r.Parents[0].Session}] != nil {
		return r.Parents[0], true // the only parent, although no record of it has the head
	}
	return messages.Ref{}, false
}

// commitOfRef returns the number of the commit that a reference into t names.
func commitOfRef(r messages.Ref, t *history) uint64 {
	if r.Commit != 0 {
		return r.Commit
	}
	return t.commitOf(r.Version)
}

// upTo returns the index of the last record up to a commit, or -1.
func (t *history) upTo(commit uint64) int {
	t.tidy()
	i := len(t.records) - 1
	for i >= 0 && t.records[i].Commit > commit {
		i--
	}
	return i
}

// chainHeads drops records that repeat the previous head. If the row of a call waits for
// the rows of other calls, its commit also has a placement with the same head: the change
// is then attributed to the call.
func chainHeads(in []messages.Record) []messages.Record {
	var out []messages.Record
	for _, r := range in {
		if n := len(out); n > 0 {
			if last := &out[n-1]; last.Head == r.Head {
				if last.Kind == messages.KindPlaced && r.Kind == messages.KindTool && last.Session == r.Session && last.Commit == r.Commit {
					r.HeadFrom = cmp.Or(r.HeadFrom, last.HeadFrom)
					*last = r
				}
				continue
			}
			r.HeadFrom = cmp.Or(r.HeadFrom, out[n-1].Head)
		}
		out = append(out, r)
	}
	return out
}
