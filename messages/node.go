package messages

import (
	"fmt"
	"strings"

	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// The verbs of a node's own subjects, which only nodes and operators may use.
const (
	NodeDrain  = "drain"  // take no more work, give runs back, and end
	NodeReplay = "replay" // what the code of a workflow that the node offers does against a run
	NodeLive   = "live"   // what the execution of a run is at
)

// NodeSubject is where an incarnation takes a verb of its own. Of a node that is bound to
// a tenant the subject names the tenant, to whose account it belongs.
func NodeSubject(incarnation, verb string) string {
	if t, bound := BoundTo(incarnation); bound {
		return HostPrefix + string(t) + "." + incarnation + "." + verb
	}
	return NodePrefix + incarnation + "." + verb
}

// What the names of bound nodes and of their pools begin with.
const boundPrefix = "tenant_"

// boundRandom is the length of the part of an incarnation that tells it from others.
const boundRandom = 12

// BoundIncarnation names the incarnation of a node that is bound to a tenant; random is
// of 12 letters and digits. The name says the tenant, so that who hears of the node
// knows whose runs it may have: nodes for all tenants pass on no other name.
func BoundIncarnation(t session.Tenant, random string) (string, error) {
	name := boundPrefix + string(t) + "_" + random
	if of, bound := BoundTo(name); !bound || of != t {
		return "", fmt.Errorf("tenant %q: %w: nodes are bound to tenants whose names have at most %d characters",
			t, run.ErrMalformed, session.MaxID-len(boundPrefix)-1-boundRandom)
	}
	return name, nil
}

// BoundTo returns the tenant that the node of an incarnation is bound to, if it is.
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

// PoolOf returns the tenant whose nodes a pool is of, if it is one of bound nodes. No
// other node may name its pool so.
func PoolOf(pool string) (t session.Tenant, bound bool) {
	rest, ok := strings.CutPrefix(pool, boundPrefix)
	return session.Tenant(rest), ok && rest != ""
}
