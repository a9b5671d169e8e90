package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/metrics"
	"github.com/rathcluster/rath/internal/nats/takeover"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// services run until the node closes.
type services struct {
	front      *serviceGroup           // services that any node can answer: others do while this one drains
	own        *serviceGroup           // services that only this node can answer; they end with it
	stopIntake context.CancelFunc      // stops the intake of tasks
	stop       context.CancelCauseFunc // ends all other services
	work       sync.WaitGroup
	failed     chan error // the first service that ended by itself
}

// background runs a service until the node closes. A service that ends earlier is a
// failure of the node.
func (s *services) background(ctx context.Context, name string, service func(context.Context) error) {
	s.work.Go(func() {
		if err := service(ctx); ctx.Err() == nil {
			s.fail(fmt.Errorf("node: %s ended: %w", name, errors.Join(err, errors.New("the service is needed as long as the node runs"))))
		}
	})
}

// fail reports why the node should close. The first reason counts.
func (s *services) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// restLast bounds how long Close waits for the services to end.
const restLast = 10 * time.Second

// rest waits until the services have ended, but not longer than limit: a node that
// stops must not hang. A service that overruns ends with its dependencies, above all
// the connection.
func (s *services) rest(most time.Duration) error {
	done := make(chan struct{})
	go func() { // outlives this call only together with an overrunning service
		s.work.Wait()
		close(done)
	}()
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return fmt.Errorf("node: not all services ended within %v; their runs resume elsewhere, or at the next start", most)
	}
}

// serve starts the services of the node on its connection.
func (n *Instance) serve(ctx context.Context) error {
	s, l := &n.services, &n.link
	var all context.Context
	all, s.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := l.retry(ctx, n.offer.publish); err != nil {
		return err
	}
	s.front, s.own = newServiceGroup(all), newServiceGroup(all)
	if err := s.own.add(l.conn.Dispatch.Delivery.ServeDeliver(s.own.ctx, l.incarnation, n.system.Delivered)); err != nil {
		return err
	}
	if l.bound == nil {
		if err := n.serveAll(all); err != nil {
			return err
		}
	}
	if err := n.serveNode(s.own); err != nil {
		return err
	}
	if l.server != nil {
		s.background(all, "slack", func(ctx context.Context) error { return giveBack(ctx, n.values.Forget) })
		s.background(all, "the embedded server", func(ctx context.Context) error {
			select {
			case <-l.server.Failed():
				return l.server.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	if n.o.HTTP.Web != "" {
		var err error
		if n.web, err = startWeb(ctx, n); err != nil {
			return err
		}
		s.background(all, "web", n.web.serve)
	}
	s.background(all, "offer", n.offer.keep)
	entered := make(chan struct{})
	s.background(all, "node entry", func(ctx context.Context) error {
		return l.home.announce(ctx, l.incarnation, n.about, func() { close(entered) })
	})
	if l.bound != nil {
		// Without an entry it counts as dead, and others also get the runs of its
		// workflows.
		select {
		case <-entered:
		case <-ctx.Done():
			return fmt.Errorf("node: stopped while it waited for its entry among the nodes: %w", ctx.Err())
		}
	}
	if deaths := n.o.Fleet.Deaths; deaths != nil {
		s.background(all, "deaths of nodes", func(ctx context.Context) error { return l.conn.Dispatch.Delivery.ServeDeaths(ctx, deaths) })
	}
	if n.o.Idle {
		return nil
	}
	if err := n.startNotifier(ctx, all); err != nil { // before it takes tasks
		return err
	}
	for _, sweep := range n.sandboxes.sweepers {
		s.background(all, "removal of containers", sweep)
	}
	var intake context.Context
	intake, s.stopIntake = context.WithCancel(all)
	if l.bound == nil {
		s.background(intake, "tasks", func(ctx context.Context) error {
			return l.conn.Dispatch.PullTasks(ctx, &dispatch.Intake{Offers: n.offer.revision, Limit: n.offer.limit, Accept: n.system.Accept, Enqueue: n.system.Enqueue, Signal: n.system.Signal, Check: n.check})
		})
	}
	s.background(intake, "runs", func(ctx context.Context) error {
		return l.conn.Dispatch.ServeRuns(ctx, &dispatch.Host{
			Incarnation: l.incarnation, Pool: n.o.Fleet.Pool, Free: n.system.Free, Freed: n.system.Freed(), Take: n.system.Dispatched,
		})
	})
	return nil
}

// serveAll starts the services of a node for all tenants: the relay, and the answers to
// clients and to nodes that are bound to tenants.
func (n *Instance) serveAll(all context.Context) error {
	s, c, incarnation := &n.services, n.link.conn, n.link.incarnation
	takeOver := func(ctx context.Context, t session.Tenant, user string, file []byte) ([]messages.Imported, error) {
		return takeover.File(ctx, c, t, user, file)
	}
	if err := s.front.add(c.ServeControl(s.front.ctx, n.system.Signal, takeOver, n.Memory)); err != nil {
		return err
	}
	relay := c.Dispatch.StartRelay(all, &dispatch.RelayOptions{ // before questions are answered
		Incarnation: incarnation, Known: n.fleet.known(), Changed: n.fleet.changes(all, &s.work), Signal: n.system.Signal, Strangers: n.fleet.meet,
	})
	s.background(all, "relay", func(context.Context) error { return relay.Wait() })
	queries := &api.Queries{
		Values: n.values, Replay: n.replays.run, Alive: n.fleet.alive(), Live: n.system.Live, Incarnation: incarnation, Memories: n.Memory,
	}
	if err := s.front.add(c.ServeQueries(s.front.ctx, queries)); err != nil {
		return err
	}
	if n.notifier != nil {
		n.notifier.queries = queries
	}
	if err := s.front.add(c.ServeStore(s.front.ctx, n.Memory)); err != nil {
		return err
	}
	s.background(all, "room of streams", c.Streams.Capacity.WatchRoom)
	return nil
}

// about describes the node to clients.
func (n *Instance) about() messages.Node {
	a := messages.Node{
		Name: n.o.Name, Incarnation: n.link.incarnation, Draining: n.fleet.draining.Load(), Version: Version(), PID: os.Getpid(), Started: n.started.UnixMilli(),
		Gossip: n.fleet.address(), Full: n.link.conn.Streams.Capacity.Full(), Gaps: n.link.conn.Projections.Gaps(),
	}
	if !n.o.Idle { // an idle node answers, and takes no tasks
		a.Pools, a.Offers, a.Isolation = []string{n.o.Fleet.Pool}, n.offer.revisions(), string(n.sandboxes.isolation)
		a.Slots, a.Free, a.Leaked = n.o.Slots, n.system.Free(), n.runtime.Leaked()
		a.Programs, a.Model, a.ModelError = n.sandboxes.programs, n.models.usual, n.models.fault
	}
	if s := n.fleet.strangers.Load(); s != nil {
		a.Strangers = *s
	}
	return a
}

// standing returns the node's state for a scrape. It asks no server.
func (n *Instance) standing() metrics.State {
	return metrics.State{
		Connected: n.link.conn.Conn.Connected(), Pool: n.o.Fleet.Pool, Slots: n.o.Slots, Free: n.system.Free(),
		Partitions: n.link.conn.Dispatch.Relaying(), Fills: n.link.conn.Streams.Capacity.Fills(), DeadLetters: n.link.conn.Dispatch.DeadLettered(),
		Leaked: n.runtime.Leaked(),
	}
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
