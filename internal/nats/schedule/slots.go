package schedule

import (
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// slots gives the runnable runs to nodes with free slots.
type slots struct {
	alarms   *alarms
	actions  *actions
	groups   map[groupKey]*group
	queues   map[queueKey]*queue
	nodes    nodes
	flights  map[uint64]*flight
	told     uint64 // At of the last Demand
	reminder alarm  // of nodes that can be asked, or are notified, again
}

// Node processes a node's report of its state.
func (s *slots) Node(now time.Time, st NodeState) {
	n := s.nodes[st.Incarnation]
	if st.Stopping {
		if n != nil {
			s.lose(now, n)
		}
		return
	}
	if n == nil {
		bound, ok := messages.BoundTo(st.Incarnation)
		if ok && s.nodes.heardOf(bound) >= maxHeard {
			return
		}
		n = &node{tenant: bound, out: map[*flight]struct{}{}, not: map[*group]time.Time{}}
		n.gone = &alarm{fire: func(now time.Time) { s.lose(now, n) }}
		s.nodes[st.Incarnation] = n
		for _, g := range s.groups {
			if !g.placed && g.again.index != 0 {
				s.alarms.set(g.again, now) // it may be the only one that offers the workflow
			}
		}
	}
	n.NodeState = st
	if st.Free > 0 {
		n.busy = false
	}
	s.alarms.set(n.gone, now.Add(nodeTTL))
}

// lose removes a node. Runs without its answer go to other nodes.
func (s *slots) lose(now time.Time, n *node) {
	if s.nodes[n.Incarnation] != n {
		return
	}
	delete(s.nodes, n.Incarnation)
	s.alarms.stop(n.gone)
	for f := range n.out {
		if it := f.item; it != nil {
			s.alarms.stop(&f.late)
			f.item, it.flight = nil, nil
			s.enqueue(now, it, true)
		}
	}
}

// Grant uses a slot that a node reserves for this relay under a number, for the tenant
// whose turn it is there. The answer is a Dispatch that uses it, or an Announce with the
// remaining demand.
func (s *slots) Grant(now time.Time, st NodeState, grant uint64, head Head) {
	s.Node(now, st)
	n := s.nodes[st.Incarnation]
	if n == nil || s.actions.idle {
		return
	}
	n.busy = false
	rank := 0
	if head.Batch {
		rank = batchRank
	}
	may := func(it *item) bool { return n.takes(it, now) }
	for _, want := range []struct {
		rank   int
		tenant session.Tenant
	}{{rank, head.Tenant}, {0, ""}, {batchRank, ""}} {
		q := s.queues[queueKey{n.Pool, want.rank}]
		if q == nil || q.len == 0 {
			continue
		}
		if it := q.first(want.tenant, may); it != nil {
			s.send(now, it, n, grant)
			return
		}
	}
	n.busy = st.Free <= 0
	s.actions.out = append(s.actions.out, Action{Kind: Announce, Node: n.Incarnation, Grant: grant, Demand: s.demand(now, n)})
}

// demand returns the demand for a node, and records that it is announced.
func (s *slots) demand(now time.Time, n *node) *Demand {
	s.told = max(s.told+1, uint64(now.UnixNano()))
	d := &Demand{At: s.told}
	n.tenants = map[Head]bool{}
	for rank := range classes {
		q := s.queues[queueKey{n.Pool, rank}]
		if q == nil {
			continue
		}
		for t, derived := range q.heads {
			if len(d.Heads) == maxHeads {
				break
			}
			if !n.serves(t) {
				continue
			}
			h := Head{Tenant: t, Batch: rank == batchRank, Derived: derived}
			d.Heads = append(d.Heads, h)
			n.tenants[h] = true
		}
	}
	n.demanded, n.demandDue = len(d.Heads) > 0, now.Add(demandEvery)
	return d
}

// tellDemands announces demand to busy nodes: when it begins, when a tenant arrives, and at
// intervals.
func (s *slots) tellDemands(now time.Time) {
	for _, n := range s.nodes {
		if !n.busy || n.Stopping || !s.news(now, n) {
			continue
		}
		if d := s.demand(now, n); len(d.Heads) > 0 {
			s.actions.out = append(s.actions.out, Action{Kind: Announce, Node: n.Incarnation, Demand: d})
		}
	}
	s.remind()
}

func (s *slots) news(now time.Time, n *node) bool {
	if !n.demanded || !now.Before(n.demandDue) {
		return true
	}
	if len(n.tenants) >= maxHeads {
		return false // arriving tenants wait behind them
	}
	for rank := range classes {
		q := s.queues[queueKey{n.Pool, rank}]
		if q == nil {
			continue
		}
		seen := 0
		for t, derived := range q.heads {
			if !n.serves(t) {
				continue
			}
			if seen++; seen > maxHeads {
				break
			}
			if !n.tenants[Head{Tenant: t, Batch: rank == batchRank, Derived: derived}] {
				return true
			}
		}
	}
	return false
}

// silence excludes a node from dispatches for a while.
func (s *slots) silence(now time.Time, n *node) {
	n.silent = now.Add(silentFor)
	s.nudge(n.silent)
}

// nudge schedules a call of Next at a time at which a node can be asked again.
func (s *slots) nudge(at time.Time) {
	if s.reminder.index == 0 || at.Before(s.reminder.at) {
		s.alarms.set(&s.reminder, at)
	}
}

// remind schedules the next announcement of demand to busy nodes.
func (s *slots) remind() {
	for _, n := range s.nodes {
		if n.busy && n.demanded {
			s.nudge(n.demandDue)
		}
	}
}
