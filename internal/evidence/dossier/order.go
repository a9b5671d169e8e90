package dossier

import (
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// commitRef identifies a commit.
type commitRef struct {
	c *chain
	n uint64
}

// facts returns the facts of the commit.
func (p commitRef) facts() []journal.Fact { return p.c.facts[p.n-1] }

// order returns all commits in an order in which each comes after the earlier commits of
// its log and after the commits that it refers to. Ties are broken by time, then by the
// order of steps.
func (a *archive) order() []commitRef {
	type queue struct {
		c    *chain
		refs [][]reference // of each commit
		next uint64
	}
	queues := make([]*queue, len(a.logs))
	done := map[session.ID]uint64{}
	total := 0
	for i, c := range a.logs {
		q := &queue{c: c, next: 1}
		for n := uint64(1); n <= c.last(); n++ {
			q.refs = append(q.refs, c.references(n, a.runs))
		}
		queues[i] = q
		total += len(c.entries)
	}
	ready := func(q *queue) bool {
		for _, r := range q.refs[q.next-1] {
			if r.needed && r.link.ID != q.c.key.ID && done[r.link.ID] < r.link.Seq {
				return false
			}
		}
		return true
	}
	out := make([]commitRef, 0, total)
	for len(out) < total {
		var best, first *queue
		for _, q := range queues {
			if q.next > q.c.last() {
				continue
			}
			if first == nil {
				first = q
			}
			if ready(q) && (best == nil || a.earlier(q.c, q.next, best.c, best.next)) {
				best = q
			}
		}
		if best == nil {
			best = first // circular references, which hashes cannot form
		}
		out = append(out, commitRef{best.c, best.next})
		done[best.c.key.ID] = best.next
		best.next++
	}
	return out
}

func (a *archive) earlier(x *chain, n uint64, y *chain, m uint64) bool {
	if d := x.when(n).Compare(y.when(m)); d != 0 {
		return d < 0
	}
	p, q := x.path(n, a.runs), y.path(m, a.runs)
	return p != "" && q != "" && run.ComparePaths(p, q) < 0
}

// when returns the time of a commit.
func (c *chain) when(n uint64) time.Time { return c.facts[n-1][0].Time }

// path returns the step of one of the runs that a commit records, or "".
func (c *chain) path(n uint64, runs family) run.Path {
	for _, e := range c.facts[n-1] {
		switch e.What.(type) {
		case journal.StepCompleted, journal.Late, journal.StepStarted, session.Opening:
			if runs[e.Run] {
				return e.Step
			}
		}
	}
	return ""
}
