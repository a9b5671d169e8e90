package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/workflows/router"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
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

// routed returns the offer of the node: the built-in workflows, those of its author,
// and the two that route.
func (n *Instance) routed(builtin []flow.Registration) []flow.Registration {
	if n.addsOnly() {
		return n.o.Workflows
	}
	routing := router.Registrations(n.onOffer)
	switch n.o.Fleet.Routing {
	case RouteOnly:
		return append(routing, n.o.Workflows...)
	case RouteElsewhere:
		return append(builtin, n.o.Workflows...)
	}
	return append(append(builtin, routing...), n.o.Workflows...)
}

// onOffer returns the workflows that all pools offer to the run's tenant. If the
// registry cannot be read, this attempt of the run ends, and not the run.
func (n *Instance) onOffer(ctx context.Context, named ...string) ([]messages.Workflow, error) {
	var t session.Tenant
	if info, ok := flow.RunInfo(ctx); ok {
		t = info.Tenant
	}
	all, err := n.home.workflows(ctx, named...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, session.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return dispatch.OfferedTo(all, t), err
}

// offer puts the node's workflows into the registry, and takes stale ones off its pool.
func (n *Instance) offer(ctx context.Context) error {
	if n.bound != nil {
		return n.offerBound(ctx)
	}
	if err := n.withdrawStale(ctx, !n.o.Idle); err != nil {
		return err
	}
	if err := n.conn.Dispatch.Registry.Register(ctx, n.o.Fleet.Pool, n.offered()); err != nil || n.o.Fleet.Routing != RouteOnly {
		return err
	}
	nodes, err := n.conn.Nodes(ctx)
	if err != nil {
		return err
	}
	if o, ok := servedBefore(nodes, n.o.Fleet.Pool); ok {
		n.log.Warn("this router gets no tasks while nodes of another pool offer auto and fanout: of several pools the first by name serves them; stop this router, or start those nodes with -routers",
			"pool", o.Pools[0], "node", o.Name)
	}
	return nil
}

// servedBefore returns a living node of a pool before the given one, by name, that offers
// "auto": tasks for it go there.
func servedBefore(nodes []messages.Node, pool string) (messages.Node, bool) {
	i := slices.IndexFunc(nodes, func(o messages.Node) bool {
		return !o.Dead && len(o.Pools) > 0 && o.Pools[0] < pool && slices.ContainsFunc(o.Offers, func(offer string) bool { return strings.HasPrefix(offer, router.Auto+"@") })
	})
	if i < 0 {
		return messages.Node{}, false
	}
	return nodes[i], true
}

// offerEvery is how often a node compares its offer with the registry.
const offerEvery = 30 * time.Second

// keepOffer repairs the offer of the node's pool until ctx ends: another process may have
// withdrawn the node's workflows, and a node that died may have left some to routers.
func (n *Instance) keepOffer(ctx context.Context) error {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if n.bound != nil || n.o.Idle || n.draining.Load() {
			continue
		}
		if err := n.repairOffer(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("the offer of this node was not compared with the registry; it is compared again in half a minute", "error", err)
		}
	}
}

// repairOffer registers the workflows of the node that its pool does not offer at all.
// Other revisions of them stay: nodes that started later have registered these.
func (n *Instance) repairOffer(ctx context.Context) error {
	if err := n.withdrawStale(ctx, false); err != nil {
		return err
	}
	all, err := n.conn.Dispatch.Registry.Workflows(ctx)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(n.offered(), func(own messages.Workflow) bool {
		return slices.ContainsFunc(all, func(w messages.Workflow) bool { return w.Pool == n.o.Fleet.Pool && w.Name == own.Name })
	})
	for _, w := range missing {
		n.log.Warn("a workflow of this node was withdrawn and is registered again", "pool", n.o.Fleet.Pool, "workflow", w.Name)
	}
	return n.conn.Dispatch.Registry.Register(ctx, n.o.Fleet.Pool, missing)
}

// withdrawStale withdraws workflows from the node's pool that no live node of the pool
// has: "auto" would choose them in vain, and a workflow that several pools offer goes
// to the first of them. They are the workflows that the node leaves to routers and,
// with all, each that it lacks if no other node of the pool is there.
func (n *Instance) withdrawStale(ctx context.Context, all bool) error {
	if !all && n.o.Fleet.Routing != RouteElsewhere {
		return nil
	}
	nodes, err := n.conn.Nodes(ctx)
	if err != nil {
		return err
	}
	on, err := n.conn.Dispatch.Registry.Workflows(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(nodes, func(o messages.Node) bool {
		return o.Incarnation == n.incarnation || !slices.Contains(o.Pools, n.o.Fleet.Pool)
	})
	offered := func(name string) bool {
		return slices.ContainsFunc(others, func(o messages.Node) bool {
			return slices.ContainsFunc(o.Offers, func(offer string) bool { return strings.HasPrefix(offer, name+"@") })
		})
	}
	var stale []string
	for _, w := range on {
		if _, has := n.registry.Lookup(w.Name); has || w.Pool != n.o.Fleet.Pool {
			continue
		}
		routed := n.o.Fleet.Routing == RouteElsewhere && (w.Name == router.Auto || w.Name == router.FanOut)
		if all && len(others) == 0 || routed && !offered(w.Name) {
			stale = append(stale, w.Name)
		}
	}
	return n.conn.Dispatch.Registry.Withdraw(ctx, n.o.Fleet.Pool, stale...)
}
