package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/router"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
)

// RouterPool is the pool of routers without one of their own.
const RouterPool = streams.RouterPool

// Routing says what a node has to do with the workflows "auto" and "fanout",
// which put the workflows of others to work.
//
// By itself every node offers them, so that one process is all there is to
// start. In a fleet routers may take them over: then choosing and waiting do
// not compete with the work itself, and the two scale by themselves. A workflow
// that several pools offer goes to the first of them by name, so the nodes must
// leave both to the routers.
type Routing string

const (
	// RouteHere offers both beside the node's other workflows.
	RouteHere Routing = ""
	// RouteElsewhere leaves both to routers, and takes them off the node's pool.
	RouteElsewhere Routing = "elsewhere"
	// RouteOnly makes the node a router, which offers nothing else. Routers run
	// side by side like any nodes of a pool.
	RouteOnly Routing = "only"
)

// set reads whether routers run beside a node.
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

// routed returns what the node offers: the built-in workflows, those of its
// author, and the two that route.
func (n *Instance) routed(builtin []flow.Registration) []flow.Registration {
	if n.addsOnly() {
		return n.o.Workflows
	}
	routing := router.Registrations(n.onOffer)
	switch n.o.Routing {
	case RouteOnly:
		return append(routing, n.o.Workflows...)
	case RouteElsewhere:
		return append(builtin, n.o.Workflows...)
	}
	return append(append(builtin, routing...), n.o.Workflows...)
}

// onOffer returns what all pools offer the tenant of the run. A registry that cannot be read ends
// this attempt of a run, and not the run.
func (n *Instance) onOffer(ctx context.Context, named ...string) ([]wire.Workflow, error) {
	var t session.Tenant
	if info, ok := flow.RunInfo(ctx); ok {
		t = info.Tenant
	}
	all, err := n.home.Workflows(ctx, named...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, session.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return dispatch.OfferedTo(all, t), err
}

// offer puts the node's workflows into the registry, and takes off its pool
// what the node leaves to routers. The only node of a pool also takes off what it
// does not have itself, since "auto" would choose it in vain. With other nodes in the
// pool, one of them may still have it, or have it already.
func (n *Instance) offer(ctx context.Context) error {
	if n.bound != nil {
		return n.offerBound(ctx)
	}
	var gone []string
	if n.o.Routing == RouteElsewhere {
		gone = []string{router.Auto, router.FanOut}
	}
	if !n.o.Idle {
		stale, err := n.stale(ctx)
		if err != nil {
			return err
		}
		gone = append(gone, stale...)
	}
	if err := n.conn.Withdraw(ctx, n.o.Pool, gone...); err != nil {
		return err
	}
	return n.conn.Register(ctx, n.o.Pool, n.offered())
}

// stale returns what the pool offers and this node has not, if no other node of
// the pool is there.
func (n *Instance) stale(ctx context.Context) ([]string, error) {
	nodes, err := n.conn.Nodes(ctx)
	if err != nil || slices.ContainsFunc(nodes, func(o wire.Node) bool { return slices.Contains(o.Pools, n.o.Pool) }) {
		return nil, err
	}
	all, err := n.conn.Workflows(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range all {
		if _, has := n.registry.Lookup(w.Name); w.Pool == n.o.Pool && !has {
			names = append(names, w.Name)
		}
	}
	return names, nil
}
