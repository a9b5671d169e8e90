package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// enqueue queues an item for dispatch. An item that comes back goes first, and keeps its
// waiting time.
func (s *Scheduler) enqueue(now time.Time, it *item, back bool) {
	if !back || it.since.IsZero() {
		it.since = now
	}
	if it.group == nil {
		k := groupKey{it.tenant(), it.task.Workflow, it.task.Revision}
		g := s.groups[k]
		if g == nil {
			g = &group{groupKey: k, items: map[*item]struct{}{}}
			g.again = &alarm{fire: func(time.Time) { s.placeAgain(k, g) }}
			s.groups[k] = g
		}
		it.group = g
		g.items[it] = struct{}{}
	}
	g := it.group
	if !g.placed {
		s.place(g)
		return
	}
	s.queue(g).add(it, back)
}

func (s *Scheduler) queue(g *group) *queue {
	k := queueKey{g.pool, g.rank}
	q := s.queues[k]
	if q == nil {
		q = newQueue()
		s.queues[k] = q
	}
	return q
}

// place requests the pools that offer a group.
func (s *Scheduler) place(g *group) {
	if !g.asked && g.again.index == 0 {
		g.asked = true
		s.ask(g, Action{Kind: Place, Tenant: g.tenant, Workflow: g.workflow, Revision: g.revision})
	}
}

func (s *Scheduler) placeAgain(k groupKey, g *group) {
	if len(g.items) == 0 {
		delete(s.groups, k)
		return
	}
	s.place(g)
}

// placed processes the registry's answer for a group, and moves its waiting runs.
func (s *Scheduler) placed(now time.Time, g *group, o Outcome) {
	g.asked = false
	if o.Result != Settled {
		s.alarms.set(g.again, now.Add(placeFirst))
		return
	}
	s.alarms.set(g.again, now.Add(placeFresh))
	pool := s.poolFor(now, g, o.Pools)
	for _, n := range s.nodes {
		delete(n.not, g)
	}
	rank := 0
	if pool.Batch {
		rank = batchRank
	}
	if g.placed && g.pool == pool.Name && g.rank == rank {
		return
	}
	moved := slices.SortedFunc(maps.Keys(g.items), func(a, b *item) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.task.Session.ID, b.task.Session.ID))
	})
	for _, it := range moved {
		if it.queue != nil {
			it.queue.remove(it)
		}
	}
	g.placed, g.pool, g.rank = true, pool.Name, rank
	for _, it := range moved {
		if it.flight == nil && (it.rest == nil || it.rest.index == 0) {
			s.queue(g).add(it, false)
		}
	}
}

// poolFor returns the first pool with a living node that may be asked for a group: an offer
// outlives the nodes of its pool. Without such a node it returns the first pool of all.
func (s *Scheduler) poolFor(now time.Time, g *group, pools []Pool) Pool {
	if len(pools) > 1 {
		for _, p := range pools {
			if nodes, _ := s.nodesOf(now, g, p.Name); nodes > 0 {
				return p
			}
		}
	}
	return pools[0]
}

// drop ends the dispatching of an item. An answer in transit is only counted.
func (s *Scheduler) drop(it *item) {
	if it.queue != nil {
		it.queue.remove(it)
	}
	if it.flight != nil {
		s.alarms.stop(&it.flight.late)
		if it.flight.clearing {
			delete(it.flight.node.out, it.flight)
		}
		it.flight.item, it.flight = nil, nil
	}
	s.alarms.stop(it.rest)
	if it.group != nil {
		if delete(it.group.items, it); len(it.group.items) == 0 && it.group.again.index == 0 && !it.group.asked {
			delete(s.groups, it.group.groupKey)
		}
		it.group = nil
	}
}

// pause has an item dispatched again after a while.
func (s *Scheduler) pause(now time.Time, it *item, first, most time.Duration) {
	if it.rest == nil {
		it.rest = &alarm{fire: func(now time.Time) {
			it.not = nil
			s.enqueue(now, it, false)
		}}
	}
	s.alarms.set(it.rest, now.Add(it.tries.next(first, most)))
}

// assign sends waiting runs to nodes with free slots.
func (s *Scheduler) assign(now time.Time) {
	for _, k := range slices.SortedFunc(maps.Keys(s.queues), func(a, b queueKey) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.pool, b.pool))
	}) {
		q := s.queues[k]
		if q.len == 0 {
			delete(s.queues, k)
			continue
		}
		for len(s.flights) < dispatchesAtOnce && q.len > 0 && s.anyMay(now, k.pool) {
			var to *node
			it := q.first("", func(it *item) bool {
				to = s.choose(now, k.pool, it)
				return to != nil
			})
			if it == nil {
				break
			}
			s.send(now, it, to, 0)
		}
	}
	s.tellDemands(now)
}

func (s *Scheduler) anyMay(now time.Time, pool string) bool {
	for _, n := range s.nodes {
		if n.Pool == pool && n.may(now) {
			return true
		}
	}
	return false
}

// choose returns the node for an item: its former node, else the one with the most free
// slots.
func (s *Scheduler) choose(now time.Time, pool string, it *item) *node {
	able := func(n *node) bool {
		return n != nil && n.Pool == pool && n.may(now) && n.takes(it, now)
	}
	if n := s.nodes[it.prefer]; able(n) {
		return n
	}
	var best *node
	for _, n := range s.nodes {
		if !able(n) {
			continue
		}
		if best == nil {
			best = n
			continue
		}
		// The order of names spreads ties differently for each relay run.
		if d := cmp.Compare(n.Free-len(n.out), best.Free-len(best.out)); d > 0 || d == 0 && n.Incarnation < best.Incarnation {
			best = n
		}
	}
	return best
}

// send dispatches an item to a node.
func (s *Scheduler) send(now time.Time, it *item, n *node, grant uint64) {
	it.queue.take(it)
	f := &flight{item: it, node: n}
	it.flight = f
	s.last++
	id := s.last
	f.late.fire = func(now time.Time) { s.overdue(now, f) }
	s.alarms.set(&f.late, now.Add(overdue))
	s.flights[id] = f
	n.out[f] = struct{}{}
	a := Action{ID: id, Kind: Dispatch, Node: n.Incarnation, Grant: grant}
	t := it.task
	a.Work.Task = &t
	if grant != 0 {
		a.Demand = s.demand(now, n)
		n.busy = true // the slot that it granted is this one
	}
	s.out = append(s.out, a)
}

// overdue gives a run whose node does not answer to another node.
func (s *Scheduler) overdue(now time.Time, f *flight) {
	it := f.item
	if it == nil {
		return
	}
	f.item, it.flight = nil, nil
	if f.clearing {
		delete(f.node.out, f)
	} else {
		s.silence(now, f.node)
	}
	s.avoid(it, f.node)
	s.pause(now, it, restFirst, restMost)
}

// unoffered removes the items of a group from their queue for a while, if no node of its
// pool offers its workflow.
func (s *Scheduler) unoffered(now time.Time, g *group) {
	for _, n := range s.nodes {
		if n.Pool == g.pool && n.serves(g.tenant) && n.offers(g, now) {
			return
		}
	}
	for it := range g.items {
		if it.queue != nil {
			it.queue.remove(it)
		}
	}
	g.placed = false
	s.alarms.set(g.again, now.Add(g.tries.next(placeFirst, placeMost)))
}

// silence excludes a node from dispatches for a while.
func (s *Scheduler) silence(now time.Time, n *node) {
	n.silent = now.Add(silentFor)
	s.nudge(n.silent)
}

func (s *Scheduler) avoid(it *item, n *node) {
	if it.not == nil {
		it.not = map[string]bool{}
	}
	it.not[n.Incarnation] = true
}

// othersTake reports whether another node of the pool may be asked for an item.
func (s *Scheduler) othersTake(now time.Time, it *item, n *node) bool {
	for _, other := range s.nodes {
		if other != n && other.Pool == n.Pool && !other.Stopping && other.takes(it, now) {
			return true
		}
	}
	return false
}

// answered processes a node's answer to a dispatch.
func (s *Scheduler) answered(now time.Time, f *flight, o Outcome) {
	n, it := f.node, f.item
	s.alarms.stop(&f.late)
	if o.Result == Clearing && it != nil { // if the node is lost, the run goes elsewhere
		n.Free, n.busy, n.demanded, f.clearing = 0, true, false, true
		s.alarms.set(&f.late, now.Add(clearingMost))
		return
	}
	delete(n.out, f)
	if o.Free >= 0 && (o.Result == Settled || o.Result == Busy) {
		if n.Free = o.Free; n.Free > 0 {
			n.busy = false
		}
	}
	switch o.Result {
	case Busy:
		n.Free, n.busy, n.demanded = 0, true, false
	case NotOffered:
		if it != nil {
			n.not[it.group] = now.Add(notOffered)
			s.nudge(now.Add(notOffered))
			defer s.unoffered(now, it.group)
		}
	case Silent:
		s.silence(now, n)
	case Gone:
		s.lose(now, n)
	}
	if it == nil {
		return
	}
	it.flight = nil
	switch {
	case o.Result == Settled && it.branch != nil:
		it.group.tries = backoff{}
		home := it.branch.of.session
		s.settle(it.branch)
		s.refresh(now, home)
	case o.Result == Settled:
		it.group.tries = backoff{}
		s.pause(now, it, overdue, restMost) // the log shows it before
	case o.Result == Failed:
		s.pause(now, it, restFirst, restMost)
	case o.Result == Crowded:
		if s.avoid(it, n); s.othersTake(now, it, n) {
			s.enqueue(now, it, true)
		} else {
			s.pause(now, it, restFirst, crowdedMost)
		}
	default:
		s.enqueue(now, it, true)
	}
}

// Node processes a node's report of its state.
func (s *Scheduler) Node(now time.Time, st NodeState) {
	n := s.nodes[st.Incarnation]
	if st.Stopping {
		if n != nil {
			s.lose(now, n)
		}
		return
	}
	if n == nil {
		bound, ok := messages.BoundTo(st.Incarnation)
		if ok && s.heardOf(bound) >= maxHeard {
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

// heardOf returns the number of tracked nodes bound to a tenant.
func (s *Scheduler) heardOf(t session.Tenant) (nodes int) {
	for _, n := range s.nodes {
		if n.tenant == t {
			nodes++
		}
	}
	return nodes
}

// lose removes a node. Runs without its answer go to other nodes.
func (s *Scheduler) lose(now time.Time, n *node) {
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
func (s *Scheduler) Grant(now time.Time, st NodeState, grant uint64, head Head) {
	s.Node(now, st)
	n := s.nodes[st.Incarnation]
	if n == nil || s.idle {
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
	s.out = append(s.out, Action{Kind: Announce, Node: n.Incarnation, Grant: grant, Demand: s.demand(now, n)})
}

// demand returns the demand for a node, and records that it is announced.
func (s *Scheduler) demand(now time.Time, n *node) *Demand {
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
func (s *Scheduler) tellDemands(now time.Time) {
	for _, n := range s.nodes {
		if !n.busy || n.Stopping || !s.news(now, n) {
			continue
		}
		if d := s.demand(now, n); len(d.Heads) > 0 {
			s.out = append(s.out, Action{Kind: Announce, Node: n.Incarnation, Demand: d})
		}
	}
	s.remind()
}

func (s *Scheduler) news(now time.Time, n *node) bool {
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
