package node

import "github.com/rathcluster/rath/internal/models/limiter"

// limit creates the limits of the models that this node asks. All nodes share them,
// except nodes that are bound to a tenant: these store nothing and keep limits of their
// own.
func (n *Instance) limit() {
	var store limiter.Store = &limiter.Memory{}
	if n.bound == nil {
		store = n.conn.Dispatch.Ledgers()
	}
	n.limits = limiter.NewSet(store, n.incarnation, n.log)
	if known := n.known(); known != nil {
		n.limits.Dead = func(incarnation string) bool {
			alive, certain := known(incarnation)
			return certain && !alive
		}
	}
}
