package schedule

import (
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
