package node

import (
	"fmt"
	"strconv"

	"github.com/rathcluster/rath/internal/nats/streams"
)

// RouterPool is the default pool of routers. Other nodes may not use this name.
const RouterPool = streams.RouterPool

// Routing selects the node's part in running the workflows "auto" and "fanout", which
// start the workflows of others.
//
// By default every node offers them, so that one process suffices. In a fleet routers
// may take them over: then choosing and waiting do not compete with the work itself,
// and the two scale independently. A workflow that several pools offer goes to the
// first of them by name, so the nodes must leave both to the routers.
type Routing string

const (
	// RouteHere offers both beside the node's other workflows.
	RouteHere Routing = ""
	// RouteElsewhere leaves both to routers, and withdraws them from the node's pool.
	RouteElsewhere Routing = "elsewhere"
	// RouteOnly makes the node a router, which offers no other built-in workflows.
	// Routers run side by side like any nodes of a pool.
	RouteOnly Routing = "only"
)

// set parses whether routers run beside a node.
func (r *Routing) set(text string) error {
	elsewhere, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	*r = RouteHere
	if elsewhere {
		*r = RouteElsewhere
	}
	return nil
}
