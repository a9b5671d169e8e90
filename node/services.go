package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/metrics"
	"github.com/rathcluster/rath/internal/nats/takeover"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// serve starts the services of the node on its connection.
func (n *Instance) serve(ctx context.Context) error {
	var services context.Context
	services, n.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := n.retry(ctx, n.offer); err != nil {
		return err
	}
	n.front, n.own = newServiceGroup(services), newServiceGroup(services)
	deliver, err := n.conn.Dispatch.Delivery.ServeDeliver(n.own.ctx, n.incarnation, n.system.Delivered)
	if err != nil {
		return err
	}
	n.own.add(deliver)
	if n.bound == nil {
		if err := n.serveAll(services); err != nil {
			return err
		}
	}
	if err := n.serveNode(n.own.ctx); err != nil {
		return err
	}
	if n.server != nil {
		n.background(services, "slack", func(ctx context.Context) error { return giveBack(ctx, n.values.Forget) })
		n.background(services, "the embedded server", func(ctx context.Context) error {
			select {
			case <-n.server.Failed():
				return n.server.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	n.background(services, "offer", n.keepOffer)
	entered := make(chan struct{})
	n.background(services, "node entry", func(ctx context.Context) error {
		return n.home.announce(ctx, n.incarnation, n.about, func() { close(entered) })
	})
	if n.bound != nil {
		// Without an entry it counts as dead, and others also get the runs of its
		// workflows.
		select {
		case <-entered:
		case <-ctx.Done():
			return fmt.Errorf("node: stopped while it waited for its entry among the nodes: %w", ctx.Err())
		}
	}
	if n.o.Fleet.Deaths != nil {
		n.background(services, "deaths of nodes", func(ctx context.Context) error { return n.conn.Dispatch.Delivery.ServeDeaths(ctx, n.o.Fleet.Deaths) })
	}
	if n.o.Idle {
		return nil
	}
	for _, sweep := range n.sweepers {
		n.background(services, "removal of containers", sweep)
	}
	var intake context.Context
	intake, n.stopIntake = context.WithCancel(services)
	if n.bound == nil {
		n.background(intake, "tasks", func(ctx context.Context) error {
			return n.conn.Dispatch.PullTasks(ctx, &dispatch.Intake{Offers: n.offers, Accept: n.system.Accept, Enqueue: n.system.Enqueue, Signal: n.system.Signal, Check: n.check})
		})
	}
	n.background(intake, "runs", func(ctx context.Context) error {
		return n.conn.Dispatch.ServeRuns(ctx, &dispatch.Host{
			Incarnation: n.incarnation, Pool: n.o.Fleet.Pool, Free: n.system.Free, Freed: n.system.Freed(), Take: n.system.Dispatched,
		})
	})
	return nil
}

// serveAll starts the services of a node for all tenants: the relay, and the answers to
// clients and to nodes that are bound to tenants.
func (n *Instance) serveAll(services context.Context) error {
	control, err := n.conn.ServeControl(n.front.ctx, n.system.Signal, n.takeOver, n.Memory)
	if err != nil {
		return err
	}
	n.front.add(control)
	relay := n.conn.Dispatch.StartRelay(services, n.relay(services)) // before questions are answered
	n.background(services, "relay", func(context.Context) error { return relay.Wait() })
	queries, err := n.conn.ServeQueries(n.front.ctx, &api.Queries{Values: n.values, Replay: n.replay, Alive: n.alive(), Live: n.system.Live, Incarnation: n.incarnation, Memories: n.Memory})
	if err != nil {
		return err
	}
	n.front.add(queries)
	store, err := n.conn.ServeStore(n.front.ctx, n.Memory)
	if err != nil {
		return err
	}
	n.front.add(store)
	n.background(services, "room of streams", n.conn.Streams.Capacity.WatchRoom)
	return nil
}

// waits returns the runs that wait for slots, per pool. A node that is bound to a
// tenant receives no relay's messages and returns none.
func (n *Instance) waits(ctx context.Context) ([]dispatch.PoolWaiting, error) {
	if n.bound != nil {
		return nil, nil
	}
	return n.conn.Dispatch.Waiting(ctx)
}

// background runs a service until the node closes. A service that ends earlier is a
// failure of the node.
func (n *Instance) background(ctx context.Context, name string, service func(context.Context) error) {
	n.work.Go(func() {
		err := service(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case n.failed <- fmt.Errorf("node: %s ended: %w", name, errors.Join(err, errors.New("the service is needed as long as the node runs"))):
		default:
		}
	})
}

// takeOver imports a file that a client has uploaded.
func (n *Instance) takeOver(ctx context.Context, t session.Tenant, user string, file []byte) ([]messages.Imported, error) {
	return takeover.File(ctx, n.conn, t, user, file)
}

func (n *Instance) offers(workflow string) (revision string, ok bool) {
	g, ok := n.registry.Lookup(workflow)
	return g.Revision, ok
}

func (n *Instance) offered() []messages.Workflow {
	var all []messages.Workflow
	for _, g := range n.registry.All() {
		w := messages.Workflow{Name: g.Name, Description: g.Description, Revision: g.Revision, Input: g.Input}
		if g.Batch {
			w.Class = messages.ClassBatch
		}
		describe(&w, g)
		all = append(all, w)
	}
	return all
}

// about describes the node to clients.
func (n *Instance) about() messages.Node {
	a := messages.Node{
		Name: n.o.Name, Incarnation: n.incarnation, Draining: n.draining.Load(), Version: Version(), PID: os.Getpid(), Started: n.started.UnixMilli(),
		Full: n.conn.Streams.Capacity.Full(), Gaps: n.conn.Projections.Gaps(),
	}
	if n.members != nil {
		a.Gossip = n.members.Addr()
	}
	if !n.o.Idle { // an idle node answers, and takes no tasks
		a.Pools, a.Offers, a.Isolation = []string{n.o.Fleet.Pool}, n.revisions(), string(n.isolation)
		a.Slots, a.Free = n.o.Slots, n.system.Free()
		a.Programs, a.Model, a.ModelError = n.programs, n.model, n.modelError
	}
	if s := n.strangers.Load(); s != nil {
		a.Strangers = *s
	}
	return a
}

// standing returns the node's state for a scrape. It asks no server.
func (n *Instance) standing() metrics.State {
	return metrics.State{
		Connected: n.conn.Conn.Connected(), Pool: n.o.Fleet.Pool, Slots: n.o.Slots, Free: n.system.Free(),
		Partitions: n.conn.Dispatch.Relaying(), Fills: n.conn.Streams.Capacity.Fills(), DeadLetters: n.conn.Dispatch.DeadLettered(),
	}
}

// revisions returns the workflows of this node with their revisions.
func (n *Instance) revisions() []string {
	var all []string
	for _, g := range n.registry.All() {
		all = append(all, g.Name+"@"+g.Revision)
	}
	return all
}

// offeredBy reports whether a live node offers a workflow in a revision. The offers of
// a tenant's nodes are visible to its own nodes only.
func (n *Instance) offeredBy(ctx context.Context, workflow, revision string) bool {
	var own session.Tenant
	if n.bound != nil {
		own = n.bound.Tenant()
	}
	nodes, err := n.home.nodes(ctx)
	if err != nil {
		n.log.Warn("which revisions are offered is not known", "error", err)
		return false
	}
	return slices.ContainsFunc(nodes, func(o messages.Node) bool {
		return !o.Draining && visible(o.Incarnation, own) && slices.Contains(o.Offers, workflow+"@"+revision)
	})
}

// version is set by the linker in releases.
var version string

// Version returns the release of this module in the running program, or the revision
// that it was built from; "devel" if neither is known.
func Version() string {
	if version != "" {
		return version
	}
	const path, unnamed = "github.com/rathcluster/rath", "devel"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unnamed
	}
	v := ""
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == path {
			v = m.Version
		}
	}
	if v == "" || v == "(devel)" {
		return unnamed
	}
	return v
}
