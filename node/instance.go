package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/cluster"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/agents/mcp"
	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/lease"
	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/models/limiter"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/metrics"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/sandbox"
	"github.com/rathcluster/rath/sandbox/local"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

// Instance is a node at work. Close ends it.
type Instance struct {
	o           Options
	log         *slog.Logger
	incarnation string
	started     time.Time
	server      *natsserver.Server    // nil with external servers
	link        conn.Options          // address and login for conn
	dev         *supervise.Attachment // the joined `rath dev`; nil without Options.Dev
	conn        *api.Conn
	home        installation
	bound       *api.Bound // access of a node that is bound to a tenant; home is built on it
	pool        string     // as named by the options
	events      commitlog.Log
	values      *journal.Values
	memories    *memories
	limits      *limiter.Set
	memoryModel string // makes the vectors of notes; "" is none
	// memoryVectors names its vectors, see models.Model.Vectors.
	memoryVectors string
	servers       *mcp.List // MCP servers; nil has none
	health        *health   // nil without addresses in Options.HTTP
	metrics       *metrics.Metrics
	registry      *engine.Registry
	runtime       *engine.Runtime
	system        *actors.System
	members       *cluster.Members // nil without gossip
	draining      atomic.Bool
	release       func() error                  // gives the store directory up; nil if it was not taken
	sweepers      []func(context.Context) error // removes leftover containers and pods
	isolation     sandbox.Isolation             // of its sandboxes, "" without a backend
	programs      []string                      // programs for commands there, see sandbox.Programs
	model         string                        // the name of the default model
	modelError    string                        // why it cannot be asked
	strangers     atomic.Pointer[[]string]      // see dispatch.RelayOptions
	wired         atomic.Bool                   // system and isolation are set: gossip begins before

	front      *serviceGroup           // services that any node can answer: others do while this one drains
	own        *serviceGroup           // services that only this node can answer; they end with it
	stopIntake context.CancelFunc      // stops the intake of tasks
	stop       context.CancelCauseFunc // ends all other services
	work       sync.WaitGroup
	failed     chan error // the first service that ended by itself
	drained    chan struct{}
	drainOnce  sync.Once
	closed     sync.Once
	err        error
}

// Start starts a node and returns once it takes tasks, or with Options.Idle once it
// answers requests. It waits for absent external servers. ctx bounds the start only.
func Start(ctx context.Context, opts *Options) (_ *Instance, err error) {
	n := &Instance{started: time.Now(), metrics: metrics.New(Version()), failed: make(chan error, 1), drained: make(chan struct{})}
	if opts != nil {
		n.o = *opts
	}
	if n.o.Dev != "" {
		if err := n.joinDev(); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	n.defaults()
	if n.o.Slots < 0 || n.o.Drain < 0 {
		return nil, fmt.Errorf("node: %d slots and %v to drain: neither may be negative; leave them out for %d and %v",
			n.o.Slots, n.o.Drain, actors.DefaultSlots, actors.DefaultDrain)
	}
	defer func() {
		if err == nil {
			return
		}
		select {
		case cause := <-n.failed:
			err = errors.Join(cause, err)
		default:
		}
		err = errors.Join(err, n.Close())
	}()
	if n.o.HTTP.Health != "" || n.o.HTTP.Public != "" {
		if n.health, err = startHealth(ctx, n.incarnation, n.metrics.Handler(), n.log, n.o.HTTP.Health, n.o.HTTP.Public); err != nil {
			return nil, err
		}
	}
	if err := n.reach(ctx); err != nil {
		return nil, err
	}
	if err := n.join(ctx); err != nil {
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
		n.health.serves(n.system.Answering, n.home.answering, n.waits)
	}
	return n, n.announce()
}

func (n *Instance) defaults() {
	if n.o.Store == "" {
		n.o.Store = DefaultStore
	}
	if n.o.NATS.Level == "" {
		n.o.NATS.Level = string(streams.Fsync)
	}
	if n.o.Slots == 0 {
		n.o.Slots = actors.DefaultSlots
	}
	if n.o.Drain == 0 {
		n.o.Drain = actors.DefaultDrain
	}
	if n.o.Env == nil {
		n.o.Env = func(string) string { return "" }
	}
	if n.log = n.o.Logger; n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.incarnation = "n" + rand.Text()[:12]
	if n.o.Name == "" {
		n.o.Name = n.incarnation
	}
	if n.pool = n.o.Fleet.Pool; n.o.Fleet.Pool == "" {
		n.o.Fleet.Pool = dispatch.DefaultPool
		if n.o.Fleet.Routing == RouteOnly {
			n.o.Fleet.Pool = RouterPool
		}
	}
}

// connect starts the embedded server, if one is configured, and connects to it with all
// rights of a node.
func (n *Instance) connect(ctx context.Context) error {
	level, err := streams.ParseLevel(n.o.NATS.Level)
	if err != nil {
		return err
	}
	o := &streams.Options{
		Options: conn.Options{
			URL:       n.o.NATS.URL,
			User:      n.o.NATS.User,
			Password:  n.o.NATS.Password,
			CredsFile: n.o.NATS.CredsFile,
			RootCAs:   n.o.NATS.RootCAs,
			Name:      "rath " + n.incarnation,
			Inbox:     conn.NodeInbox,
			Logger:    n.log,
		},
		Level: level, Replicas: n.o.NATS.Replicas,
	}
	if n.o.NATS.URL != "" && level == streams.Fsync && len(n.o.NATS.Monitor) > 0 && len(n.o.NATS.Monitor) < n.o.NATS.Replicas {
		return &streams.DurabilityError{
			Level:  level,
			Reason: fmt.Sprintf("%d of the servers are named to be asked whether they sync every write, and each stream is on %d", len(n.o.NATS.Monitor), n.o.NATS.Replicas),
			Remedy: "name the monitoring address of every server (-monitor), or accept less by naming level replicated",
		}
	}
	if n.o.SigningKey != "" {
		key, err := signature.Load(n.o.SigningKey)
		if err != nil {
			return fmt.Errorf("node: key to sign with: %w", err)
		}
		o.Sign = key.Sign
	}
	if len(n.o.NATS.Monitor) > 0 {
		o.Probe = streams.MonitorProbe(n.o.NATS.Monitor...)
	}
	if n.dev != nil {
		o.Login, o.Probe = n.devLogin, n.devProbe
	}
	if n.o.NATS.Disk != "" || n.o.NATS.URL == "" {
		o.Disk = n.disk
	}
	if n.o.NATS.URL == "" {
		if err := makeStore(n.o.Store); err != nil {
			return fmt.Errorf("node: store directory %s: %w; name another one with --store", n.o.Store, err)
		}
		n.server, err = natsserver.Start(ctx, &natsserver.Options{
			StoreDir: storeDir(n.o.Store), Port: n.o.NATS.Port, Lazy: level == streams.Lazy,
			Space: natsserver.DiskSpace, Logger: n.log,
			// Of a node that was killed: this server rejects its passwords.
			Held: func() error { return supervise.ClearAttachment(n.o.Store) },
		})
		if err != nil {
			return err
		}
		if o.Sign == nil { // the server keeps others out of the directory
			key, err := signature.Open(filepath.Join(n.o.Store, signature.StoreFile))
			if err != nil {
				return fmt.Errorf("node: key to sign with: %w", err)
			}
			o.Sign = key.Sign
		}
		// A small disk gets small streams; package streams rejects a disk that is too
		// small.
		o.StoreBytes = max(streams.MinStoreBytes, min(streams.DefaultStoreBytes, n.server.MaxStore()))
		o.Alone, o.NewPartitions = true, streams.EmbeddedPartitions
		o.Dialer = func() (net.Conn, error) { return n.server.Dial() }
		o.User, o.Password = n.server.Node()
		o.Probe = func(context.Context) ([]streams.SyncState, error) {
			always, interval, err := n.server.Sync()
			return []streams.SyncState{{Server: n.server.Name(), Always: always, Interval: interval}}, err
		}
	}
	n.link = o.Options
	if n.server == nil && n.dev == nil {
		t, err := api.BoundTo(ctx, &o.Options)
		if err != nil {
			return err
		}
		if t != "" {
			return n.bind(ctx, t, o)
		}
	}
	if n.o.Fleet.Pool == RouterPool && n.o.Fleet.Routing != RouteOnly {
		return fmt.Errorf("node: pool %s is the routers', whose offer of auto and fanout it would replace: give the pool of this node another name", RouterPool)
	}
	if of, bound := messages.PoolOf(n.o.Fleet.Pool); bound {
		return foreignPool(n.o.Fleet.Pool, of)
	}
	if n.conn, err = api.Connect(ctx, o); err != nil {
		return err
	}
	n.install()
	if err := n.conn.Conn.Require(ctx, n.role(), permission.Place{Generation: n.conn.Streams.Generation(), Partitions: n.conn.Streams.Partitions()}); err != nil {
		return err
	}
	err = n.conn.Streams.Provision(ctx)
	if n.server != nil && n.server.MaxStore() < streams.MinStoreBytes && errors.Is(err, conn.ErrFull) {
		return fmt.Errorf("node: store directory %s: a store may take three quarters of its disk's free space, %d MiB, and a new one needs %d MiB: "+
			"free some space or name another directory with --store: %w", n.o.Store, n.server.MaxStore()>>20, streams.MinStoreBytes>>20, conn.ErrFull)
	}
	return err
}

// disk returns the state of the streams' disk, if this process can read it.
func (n *Instance) disk() streams.Disk {
	var d natsserver.Disk
	if n.server != nil {
		d = n.server.Disk()
	} else if space, err := natsserver.DiskSpace(n.o.NATS.Disk); err == nil {
		d.Space = space
	}
	if d.Total == 0 {
		return streams.Disk{} // the disk could not be read
	}
	return streams.Disk{Free: d.Free, Total: d.Total, Kept: d.Kept(), FreeFiles: d.FreeFiles, KeptFiles: d.KeptFiles(), Failed: d.Failed}
}

// role returns the role of the node's credentials.
func (n *Instance) role() permission.Role {
	if n.o.Fleet.Routing == RouteOnly {
		return permission.RoleRouter
	}
	return permission.RoleNode
}

// wire builds the parts that execute runs.
func (n *Instance) wire(ctx context.Context) error {
	n.events = n.home.log
	n.values = journal.NewValues(n.events)
	n.limit()
	choices, err := n.readModels()
	if err != nil {
		return err
	}
	if err := n.readServers(); err != nil {
		return err
	}
	places, err := n.workspaces(ctx)
	if err != nil {
		return err
	}
	n.remember()
	n.isolation, n.programs = n.offersIsolation(ctx, places)
	n.model, n.modelError = n.defaultModel(ctx)
	n.registry = &engine.Registry{}
	for _, g := range n.routed([]flow.Registration{
		agentRegistration(append(tool.Builtins(), n.o.Tools...), n.announced, n.Blobs), forkRegistration(), mergeRegistration(),
	}) {
		if err := n.registry.Register(g); err != nil {
			return err
		}
	}
	n.runtime = &engine.Runtime{
		Values: n.values, Models: n.o.Models.Source, Memory: n.Memory, Blobs: n.Blobs, Workspaces: places,
		Mint: commitlog.IDGenerator{Generation: n.conn.Streams.Generation(), Partitions: n.conn.Streams.Partitions()},
		Node: n.incarnation, Model: n.o.Models.Default, OnDelta: n.conn.PublishDelta, OnWarning: n.o.OnWarning, OnRequest: n.metrics.Requested, Offered: n.offeredBy, Choices: choices, Servers: n.toolServer,
	}
	n.system = actors.New(&actors.Options{
		Log: n.events, Spills: true, Values: n.values, Incarnation: n.incarnation, Durability: n.o.NATS.Level, Logger: n.log, OnAppend: n.metrics.Appended,
		Runtime: n.runtime, Workflows: n.registry, Slots: n.o.Slots, Drain: n.o.Drain,
		Alive: n.alive(), Changed: n.changed(), Deliver: n.home.deliver, LastWords: n.conn.Dispatch.Delivery.LastWords,
	})
	n.wired.Store(true)
	return nil
}

// workspaces prepares the directories of sandboxes and removes the leftovers of former
// processes. It locks the store for this node first, so that no leftover is in use: two
// nodes of external servers could be given the same store by mistake.
func (n *Instance) workspaces(ctx context.Context) (lease.Workspaces, error) {
	dir, err := filepath.Abs(n.o.Store)
	if err != nil {
		return lease.Workspaces{}, fmt.Errorf("node: store directory: %w", err)
	}
	if err := makeStore(dir); err != nil {
		return lease.Workspaces{}, fmt.Errorf("node: store directory: %w; name another one with -store", err)
	}
	if n.release == nil {
		if n.release, err = natsserver.Hold(dir); err != nil {
			return lease.Workspaces{}, fmt.Errorf("node: %w", err)
		}
	}
	boxes, work, forks := filepath.Join(dir, "boxes"), filepath.Join(dir, "work"), filepath.Join(dir, "forks")
	if _, err := local.Reap(ctx, boxes); err != nil {
		n.log.Warn("sandboxes of a former process are not all gone", "error", err)
	}
	for _, d := range []string{work, forks} {
		if err := errors.Join(lease.ClearForks(d), sandbox.RemoveTree(d)); err != nil {
			n.log.Warn("workspaces of a former process are not all gone", "error", err)
		}
	}
	w := lease.Workspaces{Dir: work, Backends: map[string]sandbox.Backend{"local": local.New(&local.Options{State: boxes})}}
	if n.o.Sandbox.Docker.Image != "" && !n.o.Idle {
		if w.Backends["docker"], err = n.containers(ctx, dir); err != nil {
			return lease.Workspaces{}, err
		}
	}
	if n.o.Sandbox.OpenSandbox.URL != "" && !n.o.Idle {
		if w.Backends["opensandbox"], err = n.openSandbox(ctx); err != nil {
			return lease.Workspaces{}, err
		}
	}
	if w.Forks, err = lease.NewForks(forks); err != nil {
		n.log.Info("each fork of a session copies its files", "because", err)
	}
	if n.o.Sandbox.Kubernetes.Image != "" && !n.o.Idle {
		if w.Backends["kubernetes"], err = n.pods(ctx); err != nil {
			return lease.Workspaces{}, err
		}
	}
	maps.Copy(w.Backends, n.o.Sandbox.Backends)
	for _, name := range slices.Sorted(maps.Keys(n.o.Sandbox.Backends)) {
		if n.o.Idle {
			break
		}
		if err := n.sweep(ctx, n.o.Sandbox.Backends[name]); err != nil {
			return lease.Workspaces{}, fmt.Errorf("node: sandboxes of %q: %w", name, err)
		}
	}
	if w.Sandbox = n.o.Sandbox.Limits; w.Sandbox != (sandbox.Limits{}) {
		if err := n.enforceable(ctx, w); err != nil {
			return lease.Workspaces{}, err
		}
	}
	if w.Egress, err = n.egress(); err != nil {
		return lease.Workspaces{}, err
	}
	w.Network = n.o.Sandbox.Network
	if n.o.Sandbox.Unsafe {
		w.MinIsolation = sandbox.IsolationProcess
	}
	return w, nil
}

// Log returns the log of all sessions. Only actors write to it.
func (n *Instance) Log() commitlog.Log { return n.events }

// Blobs returns a tenant's blobs.
func (n *Instance) Blobs(t session.Tenant) blob.Store { return n.home.blobs(t) }

// Level is the durability that this node promises.
func (n *Instance) Level() string { return n.o.NATS.Level }

// Incarnation names this start of this node.
func (n *Instance) Incarnation() string { return n.incarnation }

// URL returns the address of the servers for clients; "" if the embedded server does not
// listen.
func (n *Instance) URL() string {
	if n.server == nil {
		return n.o.NATS.URL
	}
	return n.server.URL()
}

// Full returns the streams that reject some writes, and "disk" if the disk of the store
// does.
func (n *Instance) Full() []messages.StreamFill { return n.conn.Streams.Capacity.Full() }

// Stores returns nil if the servers can store data at this moment, and otherwise an
// error with the reason.
func (n *Instance) Stores(ctx context.Context) error { return n.conn.Streams.Capacity.Stores(ctx) }

// WatchDeadLetters calls fn for each task that any node rejects from now on, until ctx
// ends.
func (n *Instance) WatchDeadLetters(ctx context.Context, fn func(t session.Tenant, workflow string, l messages.DeadLetter)) error {
	return n.conn.WatchDeadLetters(ctx, fn)
}

// Workflows returns the registrations of the node's workflows.
func (n *Instance) Workflows() []flow.Registration { return n.registry.All() }

// Failed yields the error of a service that ended by itself; the node should
// then be closed.
func (n *Instance) Failed() <-chan error { return n.failed }

// relayLast bounds how long Close waits for the relay to publish the lineage of
// the last commits.
const relayLast = 5 * time.Second

// stuckLast bounds each of these, and the drain, while no data can be stored: no end
// could be recorded.
const stuckLast = 400 * time.Millisecond

// lasts returns how long Close waits for an operation with a limit.
func (n *Instance) lasts(limit time.Duration) time.Duration {
	if n.disk().Room() == streams.RoomNone {
		return min(limit, stuckLast)
	}
	return limit
}

// leaveLast bounds how long Close waits until the other members have received the
// node's departure.
const leaveLast = 2 * time.Second

// restLast bounds how long Close waits for the services to end.
const restLast = 10 * time.Second

// rest waits until the services have ended, but not longer than restLast: a node that
// stops must not hang. A service that overruns ends with its dependencies, above all
// the connection.
func (n *Instance) rest() error {
	done := make(chan struct{})
	go func() { // outlives this call only together with an overrunning service
		n.work.Wait()
		close(done)
	}()
	limit := time.NewTimer(n.lasts(restLast))
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return fmt.Errorf("node: not all services ended within %v; their runs resume elsewhere, or at the next start", restLast)
	}
}

// Close drains the node: it accepts no more tasks, lets runs continue for at most
// Options.Drain, releases the remaining ones, and ends everything that Start began. A
// second call waits for the same end.
func (n *Instance) Close() error {
	n.closed.Do(func() { n.err = n.close() })
	return n.err
}

func (n *Instance) close() error {
	var errs []error
	if n.health != nil {
		n.health.drains()
		defer func() {
			if err := n.health.stop(); err != nil {
				n.log.Warn("the health endpoints did not stop cleanly", "error", err)
			}
		}()
	}
	n.draining.Store(true)
	if n.members != nil {
		if err := n.members.Update(); err != nil {
			n.log.Warn("the other nodes do not know yet that this node drains", "error", err)
		}
	}
	if n.stopIntake != nil {
		n.stopIntake()
	}
	errs = append(errs, n.front.close())
	if n.system != nil {
		ctx, cancel := context.WithTimeout(context.Background(), n.lasts(n.o.Drain))
		errs = append(errs, n.system.Park(ctx))
		cancel()
	}
	if n.stop != nil {
		// Watchers see how the last runs ended before the relay stops.
		ctx, cancel := context.WithTimeout(context.Background(), n.lasts(relayLast))
		if n.bound == nil {
			if err := n.conn.Projections.WaitCaughtUp(ctx); err != nil {
				n.log.Warn("the next start publishes the rest of the lineage", "error", err)
			}
		}
		cancel()
		errs = append(errs, n.own.close())
		n.stop(run.ErrShutdown)
	}
	errs = append(errs, n.rest())
	if n.limits != nil {
		n.limits.Close()
	}
	if n.members != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveLast)
		errs = append(errs, n.members.Leave(ctx), n.members.Close())
		cancel()
	}
	if n.server != nil {
		errs = append(errs, supervise.RemoveAttachment(n.o.Store))
	}
	if n.memories != nil {
		errs = append(errs, n.memories.close())
	}
	if n.conn != nil {
		errs = append(errs, n.conn.Conn.Close())
	}
	if n.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), natsserver.DefaultStartTimeout)
		errs = append(errs, n.server.Shutdown(ctx))
		cancel()
	}
	if n.release != nil {
		errs = append(errs, n.release())
	}
	return errors.Join(errs...)
}

// HomeOf returns the session of a run whose task named none.
func (n *Instance) HomeOf(t session.Tenant, id run.ID) session.ID { return n.conn.Logs.HomeOf(t, id) }
