package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rathcluster/rath/session"
)

// enqueue queues an item for dispatch. An item that comes back goes first, and keeps its
// waiting time.
func (s *slots) enqueue(now time.Time, it *item, back bool) {
	if !back || it.since.IsZero() {
		it.since = now
	}
	if it.group == nil {
		k := groupKey{it.tenant(), it.task.Workflow, it.task.Revision, it.batch}
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

func (s *slots) queue(g *group) *queue {
	k := queueKey{g.pool, g.rank}
	q := s.queues[k]
	if q == nil {
		q = newQueue()
		s.queues[k] = q
	}
	return q
}

// place requests the pools that offer a group.
func (s *slots) place(g *group) {
	if !g.asked && g.again.index == 0 {
		g.asked = true
		s.actions.ask(g, Action{Kind: Place, Tenant: g.tenant, Workflow: g.workflow, Revision: g.revision})
	}
}

func (s *slots) placeAgain(k groupKey, g *group) {
	if len(g.items) == 0 {
		delete(s.groups, k)
		return
	}
	s.place(g)
}

// placed processes the registry's answer for a group, and moves its waiting runs.
func (s *slots) placed(now time.Time, g *group, o Outcome) {
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
	if pool.Batch || g.batch {
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
func (s *slots) poolFor(now time.Time, g *group, pools []Pool) Pool {
	if len(pools) > 1 {
		for _, p := range pools {
			if nodes, _ := s.nodes.offering(now, g, p.Name); nodes > 0 {
				return p
			}
		}
	}
	return pools[0]
}

// drop ends the dispatching of an item. An answer in transit is only counted.
func (s *slots) drop(it *item) {
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
func (s *slots) pause(now time.Time, it *item, first, most time.Duration) {
	if it.rest == nil {
		it.rest = &alarm{fire: func(now time.Time) {
			it.not = nil
			s.enqueue(now, it, false)
		}}
	}
	s.alarms.set(it.rest, now.Add(it.tries.next(first, most)))
}

// assign sends waiting runs to nodes with free slots.
func (s *slots) assign(now time.Time) {
	for _, k := range slices.SortedFunc(maps.Keys(s.queues), func(a, b queueKey) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.pool, b.pool))
	}) {
		q := s.queues[k]
		if q.len == 0 {
			delete(s.queues, k)
			continue
		}
		for len(s.flights) < dispatchesAtOnce && q.len > 0 && s.nodes.anyMay(now, k.pool) {
			var to *node
			it := q.first("", func(it *item) bool {
				to = s.nodes.choose(now, k.pool, it)
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

// send dispatches an item to a node.
func (s *slots) send(now time.Time, it *item, n *node, grant uint64) {
	it.queue.take(it)
	f := &flight{item: it, node: n}
	it.flight = f
	s.actions.last++
	id := s.actions.last
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
	s.actions.out = append(s.actions.out, a)
}

// overdue gives a run whose node does not answer to another node.
func (s *slots) overdue(now time.Time, f *flight) {
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
	it.avoid(f.node)
	s.pause(now, it, restFirst, restMost)
}

// unoffered removes the items of a group from their queue for a while, if no node of its
// pool offers its workflow.
func (s *slots) unoffered(now time.Time, g *group) {
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

// answered processes a node's answer to a dispatch. begun is the beginning of a branch that
// it settles.
func (s *slots) answered(now time.Time, f *flight, o Outcome) (begun *followUp) {
	n, it := f.node, f.item
	s.alarms.stop(&f.late)
	if o.Result == Clearing && it != nil { // if the node is lost, the run goes elsewhere
		n.Free, n.busy, n.demanded, f.clearing = 0, true, false, true
		s.alarms.set(&f.late, now.Add(clearingMost))
		return nil
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
		return nil
	}
	it.flight = nil
	switch {
	case o.Result == Settled && it.branch != nil:
		it.group.tries = backoff{}
		begun = it.branch
	case o.Result == Settled:
		it.group.tries = backoff{}
		s.pause(now, it, overdue, restMost) // the log shows it before
	case o.Result == Failed:
		s.pause(now, it, restFirst, restMost)
	case o.Result == Crowded:
		if it.avoid(n); s.nodes.othersTake(now, it, n) {
			s.enqueue(now, it, true)
		} else {
			s.pause(now, it, restFirst, crowdedMost)
		}
	default:
		s.enqueue(now, it, true)
	}
	return begun
}

// placeOf returns where an item waits.
func (s *slots) placeOf(now time.Time, it *item) *QueuePlace {
	p := &QueuePlace{}
	if it.group != nil {
		p.Revision = it.group.revision
	}
	if it.flight != nil {
		p.Sent = it.flight.node.Incarnation
	}
	if it.rest != nil && it.rest.index != 0 {
		p.Again = it.rest.at.UnixMilli()
	}
	if it.group == nil || !it.group.placed {
		return p
	}
	p.Pool, p.Batch = it.group.pool, it.group.rank == batchRank
	p.Nodes, p.Free = s.nodes.offering(now, it.group, p.Pool)
	for rank := range classes {
		q := s.queues[queueKey{p.Pool, rank}]
		if q == nil {
			continue
		}
		p.Waiting += q.len
		switch {
		case q == it.queue:
			p.Ahead += q.ahead(it)
		case rank < it.group.rank:
			p.Ahead += q.len
		}
	}
	return p
}

// Waiting yields how many runnable runs each pool has no slot for, by class, and
// the number of each tenant.
func (s *slots) Waiting(yield func(pool string, batch bool, n int, tenants map[session.Tenant]int) bool) {
	for k, q := range s.queues {
		if q.len == 0 {
			continue
		}
		tenants := make(map[session.Tenant]int, len(q.lines))
		for t, l := range q.lines {
			tenants[t] = l.derived.Len() + l.fresh.Len()
		}
		if !yield(k.pool, k.rank == batchRank, q.len, tenants) {
			return
		}
	}
}
