package schedule

import (
	"time"

	"github.com/rathcluster/rath/session"
)

// NodeState is what a node says of itself: a hint, which its answers correct.
type NodeState struct {
	Incarnation string `json:"incarnation"`
	Pool        string `json:"pool"`
	Free        int    `json:"free"` // slots
	// Stopping is set while it takes nothing more.
	Stopping bool `json:"stopping,omitempty"`
}

// Head is a tenant that waits for a slot at a relay.
type Head struct {
	Tenant  session.Tenant `json:"tenant"`
	Batch   bool           `json:"batch,omitempty"`   // the class of its first run
	Derived bool           `json:"derived,omitempty"` // whether that follows from a run that has begun
}

// Times of what is said again and again.
const (
	// NodeEvery is how often a node says how it stands, nodeTTL for how long it
	// is believed.
	NodeEvery = 5 * time.Second
	nodeTTL   = 16 * time.Second
	// demandEvery is how often a relay says what waits for a node's slots, DemandTTL
	// for how long it is believed.
	demandEvery = time.Second
	DemandTTL   = 3 * time.Second
)

const (
	// silentFor is for how long a node gets nothing that did not answer.
	silentFor = time.Second
	// notOffered is for how long a node is not asked for a workflow that it did
	// not offer.
	notOffered = 5 * time.Second
	// maxHeads bounds the tenants of a demand: those that are next.
	maxHeads = 8
	// MaxBound is how many nodes may be bound to a tenant, maxHeard of how many a relay
	// believes that they are there: those that have died, too. A client with the credentials
	// of one may name as many as it likes.
	MaxBound = 256
	maxHeard = 2 * MaxBound
)

// node is what a relay knows of a node.
type node struct {
	NodeState
	tenant session.Tenant // whose runs alone it gets; "" for all
	gone   *alarm
	busy   bool // it said so, and knows the demand
	silent time.Time
	out    map[*flight]struct{} // dispatches that it has not answered
	not    map[*group]time.Time // until when it is not asked for a group

	demanded  bool // the demand at the node is not empty
	tenants   map[Head]bool
	demandDue time.Time
}

// may reports whether a node can be sent something now. Of one whose slots are
// all given, as far as is known, one more dispatch finds out.
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

// Demand is what waits at a relay for the slots of a node. It replaces what was told
// before it, but not what was told after: it comes with dispatches and by itself, on two
// ways, of which either may be the faster one.
type Demand struct {
	Heads []Head `json:"heads,omitempty"`
	// At grows with each demand of a partition's relay, and from one relay to the next as
	// far as their clocks agree: nanoseconds since 1970.
	At uint64 `json:"at,omitempty"`
}
