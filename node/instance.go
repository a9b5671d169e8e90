package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/checks"
	"github.com/rathcluster/rath/internal/agents/roster"
	"github.com/rathcluster/rath/internal/agents/rules"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/metrics"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Instance is a node at work. Close ends it.
type Instance struct {
	o         Options
	started   time.Time
	link      link
	fleet     fleet
	models    catalog
	tools     toolbox
	sandboxes sandboxes
	memories  *memories
	offer     offer
	replays   replays
	services  services
	notifier  *notifier // nil without Targets
	health    *health   // nil without HTTP.Health
	web       *web      // nil without HTTP.Web
	metrics   *metrics.Metrics
	values    *journal.Values
	runtime   *engine.Runtime
	system    *actors.System

	release   func() error // gives the store directory up; nil if it was not taken
	drained   chan struct{}
	drainOnce sync.Once
	closed    sync.Once
	err       error
}

// newInstance returns a node that has not started.
func newInstance(opts *Options) *Instance {
	n := &Instance{started: time.Now(), drained: make(chan struct{})}
	if opts != nil {
		n.o = *opts
	}
	o, l := &n.o, &n.link
	l.o, l.incarnation, n.fleet.o, n.sandboxes.o = o, "n"+rand.Text()[:12], o, o
	n.tools = toolbox{o: o, link: l}
	n.offer = offer{o: o, link: l, fleet: &n.fleet}
	n.services.failed = make(chan error, 1)
	return n
}

// Start starts a node and returns once it takes tasks, or with Options.Idle once it
// answers requests. It waits for absent external servers. ctx bounds the start only.
func Start(ctx context.Context, opts *Options) (_ *Instance, err error) {
	n := newInstance(opts)
	n.metrics = metrics.New(Version())
	l := &n.link
	if n.o.Dev != "" {
		if l.dev, n.release, err = joinDev(&n.o, n.services.fail); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	n.o.defaults()
	if n.o.Slots < 0 || n.o.Drain < 0 {
		return nil, fmt.Errorf("node: %d slots and %v to drain: neither may be negative; leave them out for %d and %v",
			n.o.Slots, n.o.Drain, actors.DefaultSlots, actors.DefaultDrain)
	}
	defer func() {
		if err == nil {
			return
		}
		select {
		case cause := <-n.services.failed:
			err = errors.Join(cause, err)
		default:
		}
		err = errors.Join(err, n.Close())
	}()
	if n.o.HTTP.Health != "" {
		if n.health, err = startHealth(ctx, l.incarnation, n.metrics.Handler(), n.o.Logger, n.o.HTTP.Health); err != nil {
			return nil, err
		}
		l.health = n.health
	}
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	n.o.named(l.incarnation)
	if err := n.fleet.join(ctx, l.incarnation); err != nil {
		return nil, err
	}
	if err := n.wire(ctx); err != nil {
		return nil, err
	}
	if err := n.serve(ctx); err != nil {
		return nil, err
	}
	n.metrics.Observe(n.standing)
	if n.health != nil {
		n.health.serves(n.system.Answering, l.home.answering, l.waiting)
	}
	return n, l.attachable(n.fleet.address(), n.web)
}

func (o *Options) defaults() {
	o.Store = cmp.Or(o.Store, DefaultStore)
	o.NATS.Level = cmp.Or(o.NATS.Level, string(streams.Fsync))
	o.Slots = cmp.Or(o.Slots, actors.DefaultSlots)
	o.Drain = cmp.Or(o.Drain, actors.DefaultDrain)
	if o.Env == nil {
		o.Env = func(string) string { return "" }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// named sets the default names of a connected node: until then its credentials may bind it
// to a tenant.
func (o *Options) named(incarnation string) {
	o.Name = cmp.Or(o.Name, incarnation)
	if o.Fleet.Routing == RouteOnly {
		o.Fleet.Pool = cmp.Or(o.Fleet.Pool, RouterPool)
	}
	o.Fleet.Pool = cmp.Or(o.Fleet.Pool, dispatch.DefaultPool)
}

// wire builds the parts that execute runs.
func (n *Instance) wire(ctx context.Context) error {
	l := &n.link
	n.values = journal.NewValues(l.home.log)
	n.replays = replays{o: &n.o, link: l, offer: &n.offer, values: n.values}
	n.models.limits = newLimits(l, &n.fleet)
	choices, err := n.models.open(&n.o)
	if err != nil {
		return err
	}
	if err := n.tools.readServers(); err != nil {
		return err
	}
	dir, err := n.holdStore()
	if err != nil {
		return err
	}
	n.link.conn.Projections.RunsFile = filepath.Join(dir, "runs.index")
	places, err := n.sandboxes.open(ctx, dir)
	if err != nil {
		return err
	}
	n.remember()
	n.models.usual, n.models.fault = defaultModel(ctx, &n.o)
	if n.notifier, err = readTargets(n); err != nil {
		return err
	}
	calls, err := rules.Read(n.o.Rules)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	edits, err := checks.Read(n.o.Checks)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	agents := &agentParts{tools: edits.Around(append(tool.Builtins(), n.o.Tools...)), elsewhere: n.tools.announced, blobs: n.Blobs}
	if agents.roster, err = roster.ReadDir(n.o.Agents); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	built := append([]flow.Registration{agents.registration(), forkRegistration(), mergeRegistration()}, agents.rosterRegistrations()...)
	for _, g := range n.offer.registrations(append(built, n.notifier.registrations()...)) {
		if err := n.offer.registry.Register(g); err != nil {
			return err
		}
	}
	n.runtime = &engine.Runtime{
		Values: n.values, Models: n.o.Models.Source, Memory: n.Memory, Blobs: n.Blobs, Workspaces: places,
		Mint: commitlog.IDGenerator{Generation: l.conn.Streams.Generation(), Partitions: l.conn.Streams.Partitions()},
		Node: l.incarnation, Model: n.o.Models.Default, OnDelta: l.conn.PublishDelta, OnStart: l.conn.PublishStart, OnWarning: n.o.OnWarning, OnRequest: n.metrics.Requested, Offered: n.offer.offeredBy, Choices: choices, Servers: n.tools.server, Rules: calls,
		OnLeak: n.leaks,
	}
	if l.bound == nil { // a bound node has no store
		n.runtime.Quota = l.conn.Dispatch.Quotas
	}
	n.system = actors.New(&actors.Options{
		Log: l.home.log, Spills: true, Values: n.values, Incarnation: l.incarnation, Durability: n.o.NATS.Level, Logger: n.o.Logger, OnAppend: n.metrics.Appended,
		Runtime: n.runtime, Workflows: &n.offer.registry, Slots: n.o.Slots, Drain: n.o.Drain,
		Alive: n.fleet.alive(), Changed: n.fleet.changed(), Deliver: l.home.deliver, LastWords: l.conn.Dispatch.Delivery.LastWords,
	})
	n.fleet.load.Store(&load{n.system.Free, n.sandboxes.isolation})
	return nil
}

// holdStore locks the store for this node and returns its absolute path: then no leftover
// of a former process is in use. Two nodes of external servers could be given the same
// store by mistake.
func (n *Instance) holdStore() (dir string, err error) {
	if dir, err = filepath.Abs(n.o.Store); err != nil {
		return "", fmt.Errorf("node: store directory: %w", err)
	}
	if err := makeStore(dir); err != nil {
		return "", fmt.Errorf("node: store directory: %w; name another one with -store", err)
	}
	if n.release == nil {
		if n.release, err = natsserver.Hold(dir); err != nil {
			return "", fmt.Errorf("node: %w", err)
		}
	}
	return dir, nil
}

// Log returns the log of all sessions. Only actors write to it.
func (n *Instance) Log() commitlog.Log { return n.link.home.log }

// Blobs returns a tenant's blobs.
func (n *Instance) Blobs(t session.Tenant) blob.Store { return n.link.home.blobs(t) }

// Level is the durability that this node promises.
func (n *Instance) Level() string { return n.o.NATS.Level }

// Incarnation names this start of this node.
func (n *Instance) Incarnation() string { return n.link.incarnation }

// URL returns the address of the servers for clients; "" if the embedded server does not
// listen.
func (n *Instance) URL() string {
	if n.link.server == nil {
		return n.o.NATS.URL
	}
	return n.link.server.URL()
}

// Full returns the streams that reject some writes, and "disk" if the disk of the store
// does.
func (n *Instance) Full() []messages.StreamFill { return n.link.conn.Streams.Capacity.Full() }

// Stores returns nil if the servers can store data at this moment, and otherwise an
// error with the reason.
func (n *Instance) Stores(ctx context.Context) error { return n.link.conn.Streams.Capacity.Stores(ctx) }

// WatchDeadLetters calls fn for each task that any node rejects from now on, until ctx
// ends.
func (n *Instance) WatchDeadLetters(ctx context.Context, fn func(t session.Tenant, workflow string, l messages.DeadLetter)) error {
	return n.link.conn.WatchDeadLetters(ctx, fn)
}

// Workflows returns the registrations of the node's workflows.
func (n *Instance) Workflows() []flow.Registration { return n.offer.registry.All() }

// Failed yields the error of a service that ended by itself; the node should
// then be closed.
func (n *Instance) Failed() <-chan error { return n.services.failed }

// relayLast bounds how long Close waits for the relay to publish the lineage of
// the last commits.
const relayLast = 5 * time.Second

// Close drains the node: it accepts no more tasks, lets runs continue for at most
// Options.Drain, releases the remaining ones, and ends everything that Start began. A
// second call waits for the same end.
func (n *Instance) Close() error {
	n.closed.Do(func() { n.err = n.close() })
	return n.err
}

func (n *Instance) close() error {
	if n.health != nil {
		n.health.drains()
		defer func() {
			if err := n.health.stop(); err != nil {
				n.o.Logger.Warn("the health endpoints did not stop cleanly", "error", err)
			}
		}()
	}
	n.fleet.drain()
	s, l := &n.services, &n.link
	if s.stopIntake != nil {
		s.stopIntake()
	}
	errs := []error{s.front.close()}
	if n.system != nil {
		ctx, cancel := context.WithTimeout(context.Background(), l.lasts(n.o.Drain))
		errs = append(errs, n.system.Park(ctx))
		cancel()
	}
	if s.stop != nil {
		// Watchers see how the last runs ended before the relay stops.
		ctx, cancel := context.WithTimeout(context.Background(), l.lasts(relayLast))
		if l.bound == nil {
			if err := l.conn.Projections.WaitCaughtUp(ctx); err != nil {
				n.o.Logger.Warn("the next start publishes the rest of the lineage", "error", err)
			}
		}
		cancel()
		errs = append(errs, s.own.close())
		s.stop(run.ErrShutdown)
	}
	errs = append(errs, s.rest(l.lasts(restLast)))
	if n.models.limits != nil {
		n.models.limits.Close()
	}
	errs = append(errs, n.fleet.leave())
	if n.memories != nil {
		errs = append(errs, n.memories.close())
	}
	errs = append(errs, l.close())
	if n.release != nil {
		errs = append(errs, n.release())
	}
	return errors.Join(errs...)
}

// HomeOf returns the session of a run whose task named none.
func (n *Instance) HomeOf(t session.Tenant, id run.ID) session.ID {
	return n.link.conn.Logs.HomeOf(t, id)
}
