package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/workflows/router"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// offer is the workflows of a node, and their entries in the registry.
type offer struct {
	o        *Options
	link     *link
	fleet    *fleet
	registry engine.Registry
}

// addsOnly reports whether the node offers its author's workflows alone, because the
// nodes of `rath dev` offer the built-in ones.
func (f *offer) addsOnly() bool {
	return f.o.Dev != "" && f.o.Fleet.Pool != dispatch.DefaultPool && f.o.Fleet.Routing != RouteOnly && len(f.o.Workflows) > 0
}

// registrations returns the offer of the node: the built-in workflows, those of its author,
// and the two that route.
func (f *offer) registrations(builtin []flow.Registration) []flow.Registration {
	if f.addsOnly() {
		return f.o.Workflows
	}
	routing := router.Registrations(f.onOffer)
	switch f.o.Fleet.Routing {
	case RouteOnly:
		return append(routing, f.o.Workflows...)
	case RouteElsewhere:
		return append(builtin, f.o.Workflows...)
	}
	return append(append(builtin, routing...), f.o.Workflows...)
}

// onOffer returns the workflows that all pools offer to the run's tenant. If the
// registry cannot be read, this attempt of the run ends, and not the run.
func (f *offer) onOffer(ctx context.Context, named ...string) ([]messages.Workflow, error) {
	var t session.Tenant
	if info, ok := flow.RunInfo(ctx); ok {
		t = info.Tenant
	}
	all, err := f.link.home.workflows(ctx, named...)
	if err != nil && ctx.Err() == nil && !errors.Is(err, session.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", session.ErrUnavailable, err)
	}
	return dispatch.OfferedTo(all, t), err
}

// publish puts the node's workflows into the registry, and takes stale ones off its pool.
func (f *offer) publish(ctx context.Context) error {
	if f.link.bound != nil {
		return f.publishBound(ctx)
	}
	if err := f.withdrawStale(ctx, !f.o.Idle); err != nil {
		return err
	}
	if err := f.link.conn.Dispatch.Registry.Register(ctx, f.o.Fleet.Pool, f.described()); err != nil || f.o.Fleet.Routing != RouteOnly {
		return err
	}
	nodes, err := f.link.conn.Nodes(ctx)
	if err != nil {
		return err
	}
	if o, ok := servedBefore(nodes, f.o.Fleet.Pool); ok {
		f.o.Logger.Warn("this router gets no tasks while nodes of another pool offer auto and fanout: of several pools the first by name serves them; stop this router, or start those nodes with -routers",
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

// keep repairs the offer of the node's pool until ctx ends: another process may have
// withdrawn the node's workflows, and a node that died may have left some to routers.
func (f *offer) keep(ctx context.Context) error {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if f.link.bound != nil || f.o.Idle || f.fleet.draining.Load() {
			continue
		}
		if err := f.repair(ctx); err != nil && ctx.Err() == nil {
			f.o.Logger.Warn("the offer of this node was not compared with the registry; it is compared again in half a minute", "error", err)
		}
	}
}

// repair registers the workflows of the node that its pool does not offer at all.
// Other revisions of them stay: nodes that started later have registered these.
func (f *offer) repair(ctx context.Context) error {
	if err := f.withdrawStale(ctx, false); err != nil {
		return err
	}
	all, err := f.link.conn.Dispatch.Registry.Workflows(ctx)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(f.described(), func(own messages.Workflow) bool {
		return slices.ContainsFunc(all, func(w messages.Workflow) bool { return w.Pool == f.o.Fleet.Pool && w.Name == own.Name })
	})
	for _, w := range missing {
		f.o.Logger.Warn("a workflow of this node was withdrawn and is registered again", "pool", f.o.Fleet.Pool, "workflow", w.Name)
	}
	return f.link.conn.Dispatch.Registry.Register(ctx, f.o.Fleet.Pool, missing)
}

// withdrawStale withdraws workflows from the node's pool that no live node of the pool
// has: "auto" would choose them in vain, and a workflow that several pools offer goes
// to the first of them. They are the workflows that the node leaves to routers and,
// with all, each that it lacks if no other node of the pool is there.
func (f *offer) withdrawStale(ctx context.Context, all bool) error {
	if !all && f.o.Fleet.Routing != RouteElsewhere {
		return nil
	}
	nodes, err := f.link.conn.Nodes(ctx)
	if err != nil {
		return err
	}
	on, err := f.link.conn.Dispatch.Registry.Workflows(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(nodes, func(o messages.Node) bool {
		return o.Incarnation == f.link.incarnation || !slices.Contains(o.Pools, f.o.Fleet.Pool)
	})
	offered := func(name string) bool {
		return slices.ContainsFunc(others, func(o messages.Node) bool {
			return slices.ContainsFunc(o.Offers, func(offer string) bool { return strings.HasPrefix(offer, name+"@") })
		})
	}
	var stale []string
	for _, w := range on {
		if _, has := f.registry.Lookup(w.Name); has || w.Pool != f.o.Fleet.Pool {
			continue
		}
		routed := f.o.Fleet.Routing == RouteElsewhere && (w.Name == router.Auto || w.Name == router.FanOut)
		if all && len(others) == 0 || routed && !offered(w.Name) {
			stale = append(stale, w.Name)
		}
	}
	return f.link.conn.Dispatch.Registry.Withdraw(ctx, f.o.Fleet.Pool, stale...)
}

// publishBound puts the workflows of a bound node on offer. In a pool of nodes for all
// tenants, those nodes publish the offer.
func (f *offer) publishBound(ctx context.Context) error {
	if f.o.Fleet.Pool != messages.BoundPool(f.link.bound.Tenant()) {
		return nil
	}
	return f.link.bound.Offer(ctx, f.described())
}

// revision returns the revision of a workflow of this node.
func (f *offer) revision(workflow string) (revision string, ok bool) {
	g, ok := f.registry.Lookup(workflow)
	return g.Revision, ok
}

// limit returns the limit of a workflow of this node.
func (f *offer) limit(workflow string) *run.Limit {
	g, _ := f.registry.Lookup(workflow)
	return g.Limit
}

// described returns the descriptions of the workflows.
func (f *offer) described() []messages.Workflow {
	var all []messages.Workflow
	for _, g := range f.registry.All() {
		w := messages.Workflow{Name: g.Name, Description: g.Description, Revision: g.Revision, Input: g.Input, Limit: g.Limit}
		if g.Batch {
			w.Class = messages.ClassBatch
		}
		describe(&w, g)
		all = append(all, w)
	}
	return all
}

// revisions returns the workflows of this node with their revisions.
func (f *offer) revisions() []string {
	var all []string
	for _, g := range f.registry.All() {
		all = append(all, g.Name+"@"+g.Revision)
	}
	return all
}

// offeredBy reports whether a live node offers a workflow in a revision. The offers of
// a tenant's nodes are visible to its own nodes only.
func (f *offer) offeredBy(ctx context.Context, workflow, revision string) bool {
	var own session.Tenant
	if f.link.bound != nil {
		own = f.link.bound.Tenant()
	}
	nodes, err := f.link.home.nodes(ctx)
	if err != nil {
		f.o.Logger.Warn("which revisions are offered is not known", "error", err)
		return false
	}
	return slices.ContainsFunc(nodes, func(o messages.Node) bool {
		return !o.Draining && visible(o.Incarnation, own) && slices.Contains(o.Offers, workflow+"@"+revision)
	})
}
