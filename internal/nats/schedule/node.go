package schedule

import (
	"cmp"
	"time"

	"github.com/rathcluster/rath/session"
)

// NodeState is a node's report of its own state: a hint, which its answers correct.
type NodeState struct {
	Incarnation string `json:"incarnation"`
	Pool        string `json:"pool"`
	Free        int    `json:"free"` // slots
	// Stopping is set once the node accepts no more runs.
	Stopping bool `json:"stopping,omitempty"`
}

// Head is a tenant that waits for a slot at a relay.
type Head struct {
	Tenant  session.Tenant `json:"tenant"`
	Batch   bool           `json:"batch,omitempty"`   // the class of its first run
	Derived bool           `json:"derived,omitempty"` // whether that follows from a run that has begun
}

// Intervals of repeated reports.
const (
	// NodeEvery is how often a node reports its state, nodeTTL how long a report is valid.
	NodeEvery = 5 * time.Second
	nodeTTL   = 16 * time.Second
	// demandEvery is how often a relay announces its demand for a node's slots, DemandTTL
	// how long an announcement is valid.
	demandEvery = time.Second
	DemandTTL   = 3 * time.Second
)

const (
	// silentFor is how long a node that did not answer gets no dispatches.
	silentFor = time.Second
	// notOffered is how long a node is not asked for a workflow that it did not offer.
	notOffered = 5 * time.Second
	// maxHeads bounds the heads of a demand: the next ones.
	maxHeads = 8
	// MaxBound is the maximum number of nodes bound to a tenant. maxHeard bounds the bound
	// nodes that a relay tracks, including dead ones: a client with the credentials of one
	// may name any number.
	MaxBound = 256
	maxHeard = 2 * MaxBound
)

// node is a relay's state of a node.
type node struct {
	NodeState
	tenant session.Tenant // whose runs alone it gets; "" for all
	gone   *alarm
	busy   bool // it reported so, and has the demand
	silent time.Time
	out    map[*flight]struct{} // dispatches that it has not answered
	not    map[*group]time.Time // until when it is not asked for a group

	demanded  bool // the demand at the node is not empty
	tenants   map[Head]bool
	demandDue time.Time
}

// may reports whether a node can be sent a dispatch now. A node without a free slot, by its
// last report, gets one dispatch as a probe.
func (n *node) may(now time.Time) bool {
	return !n.busy && !n.Stopping && !now.Before(n.silent) && (n.Free > len(n.out) || len(n.out) == 0)
}

// serves reports whether a node is for the runs of a tenant.
func (n *node) serves(t session.Tenant) bool { return n.tenant == "" || n.tenant == t }

// offers reports whether a node may be asked for a group.
func (n *node) offers(g *group, now time.Time) bool {
	until, ok := n.not[g]
	if ok && !now.Before(until) {
		delete(n.not, g)
		ok = false
	}
	return !ok
}

// takes reports whether a node may be sent an item.
func (n *node) takes(it *item, now time.Time) bool {
	return n.serves(it.tenant()) && !it.not[n.Incarnation] && n.offers(it.group, now)
}

// Demand is a relay's demand for the slots of a node. It replaces earlier announcements,
// but not later ones: it arrives with dispatches and by itself, on two paths, of which
// either may be the faster one.
type Demand struct {
	Heads []Head `json:"heads,omitempty"`
	// At grows with each demand of a partition's relay, and from one relay to the next as
	// far as their clocks agree: nanoseconds since 1970.
	At uint64 `json:"at,omitempty"`
}

// nodes are the nodes that have reported their state, by incarnation.
type nodes map[string]*node

// anyMay reports whether a node of a pool can be sent a dispatch now.
func (all nodes) anyMay(now time.Time, pool string) bool {
	for _, n := range all {
		if n.Pool == pool && n.may(now) {
			return true
		}
	}
	return false
}

// choose returns the node for an item: its former node, else the one with the most free
// slots.
func (all nodes) choose(now time.Time, pool string, it *item) *node {
	able := func(n *node) bool {
		return n != nil && n.Pool == pool && n.may(now) && n.takes(it, now)
	}
	if n := all[it.prefer]; able(n) {
		return n
	}
	var best *node
	for _, n := range all {
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

// othersTake reports whether another node of the pool may be asked for an item.
func (all nodes) othersTake(now time.Time, it *item, n *node) bool {
	for _, other := range all {
		if other != n && other.Pool == n.Pool && !other.Stopping && other.takes(it, now) {
			return true
		}
	}
	return false
}

// heardOf returns the number of tracked nodes bound to a tenant.
func (all nodes) heardOf(t session.Tenant) (count int) {
	for _, n := range all {
		if n.tenant == t {
			count++
		}
	}
	return count
}

// offering counts the living nodes of a pool that may be asked for a group, and their free
// slots.
func (all nodes) offering(now time.Time, g *group, pool string) (count, free int) {
	for _, n := range all {
		if n.Pool == pool && !n.Stopping && n.serves(g.tenant) && n.offers(g, now) {
			count++
			free += n.Free
		}
	}
	return count, free
}
