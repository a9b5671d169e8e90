package messages

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The verbs of a node's own subjects, which only nodes and operators may use.
const (
	NodeDrain  = "drain"  // accept no more work, hand runs back, and exit
	NodeReplay = "replay" // replays a run with the code of a workflow that the node offers
	NodeLive   = "live"   // the current step of a run's execution
)

// NodeSubject is the subject of a verb of an incarnation. For a node that is bound to a
// tenant it names the tenant, to whose account it belongs.
func NodeSubject(incarnation, verb string) string {
	if t, bound := BoundTo(incarnation); bound {
		return HostPrefix + string(t) + "." + incarnation + "." + verb
	}
	return NodePrefix + incarnation + "." + verb
}

// The prefix of the names of bound nodes and of their pools.
const boundPrefix = "tenant_"

// boundRandom is the length of the random part of an incarnation.
const boundRandom = 12

// BoundIncarnation names the incarnation of a node that is bound to a tenant; random
// has 12 letters and digits. The name contains the tenant, so that other nodes can tell
// whose runs the node may execute: nodes for all tenants pass on no other name.
func BoundIncarnation(t session.Tenant, random string) (string, error) {
	name := boundPrefix + string(t) + "_" + random
	if of, bound := BoundTo(name); !bound || of != t {
		return "", fmt.Errorf("tenant %q: %w: nodes are bound to tenants whose names have at most %d characters",
			t, run.ErrMalformed, session.MaxID-len(boundPrefix)-1-boundRandom)
	}
	return name, nil
}

// BoundTo returns the tenant to which the node of an incarnation is bound, if any.
func BoundTo(incarnation string) (t session.Tenant, bound bool) {
	rest, ok := strings.CutPrefix(incarnation, boundPrefix)
	i := strings.LastIndexByte(rest, '_')
	if !ok || i < 1 || len(rest)-i-1 != boundRandom || session.ValidID("incarnation", incarnation) != nil {
		return "", false
	}
	return session.Tenant(rest[:i]), true
}

// BoundPool is the pool of the nodes that are bound to a tenant.
func BoundPool(t session.Tenant) string { return boundPrefix + string(t) }

// PoolOf returns the tenant of a pool, if it is a pool of bound nodes. No other node
// may use such a name for its pool.
func PoolOf(pool string) (t session.Tenant, bound bool) {
	rest, ok := strings.CutPrefix(pool, boundPrefix)
	return session.Tenant(rest), ok && rest != ""
}
