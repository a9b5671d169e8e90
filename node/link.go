package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/rathcluster/rath/internal/evidence/signature"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/permission"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/messages"
)

// link is a node's access to its servers and, through them, to the fleet.
type link struct {
	o           *Options
	incarnation string
	health      *health            // nil without HTTP.Health
	dev         *joinedDev         // nil without Options.Dev
	server      *natsserver.Server // nil with external servers
	login       conn.Options       // address and login, for clients too
	conn        *api.Conn
	home        installation
	bound       *api.Bound // access of a node that is bound to a tenant; home is built on it
}

const (
	// reachFirst and reachMost bound the time between attempts to reach absent servers.
	reachFirst = 250 * time.Millisecond
	reachMost  = 5 * time.Second
	// reachSaid is the time between two lines of the log about the same reason to wait,
	// however many attempts there are.
	reachSaid = time.Minute
)

// reach connects.
func (l *link) reach(ctx context.Context) error {
	return l.retry(ctx, func(ctx context.Context) error {
		if l.conn != nil {
			// Connected before, but without its streams.
			if err := l.conn.Conn.Close(); err != nil {
				l.o.Logger.Info("a connection did not close cleanly", "err", err)
			}
			l.conn = nil
		}
		return l.connect(ctx)
	})
}

// retry runs a step of the start that asks servers. It repeats the step as long as
// external servers may just be absent: a node may start before they do. The health
// endpoints and the log report the reason.
func (l *link) retry(ctx context.Context, step func(context.Context) error) error {
	var reason string
	var said time.Time
	for wait := reachFirst; ; wait = min(2*wait, reachMost) {
		err := step(ctx)
		if err == nil || l.o.NATS.URL == "" || !streams.WillPass(err) {
			return err
		}
		if l.health != nil {
			l.health.waits(err.Error())
		}
		if err.Error() != reason || time.Since(said) >= reachSaid {
			reason, said = err.Error(), time.Now()
			l.o.Logger.Warn("waiting for the NATS servers", "err", err)
		}
		if conn.Pause(ctx, wait/2+rand.N(wait)); ctx.Err() != nil {
			return fmt.Errorf("node: stopped while it waited for servers: %w: %w", ctx.Err(), err)
		}
	}
}

// streams returns the options of the connection, without an embedded server's.
func (l *link) streams() (*streams.Options, error) {
	at := &l.o.NATS
	level, err := streams.ParseLevel(at.Level)
	if err != nil {
		return nil, err
	}
	o := &streams.Options{
		Options: conn.Options{
			URL: at.URL, User: at.User, Password: at.Password, CredsFile: at.CredsFile, RootCAs: at.RootCAs,
			Name: "rath " + l.incarnation, Inbox: conn.NodeInbox, Logger: l.o.Logger,
		},
		Level: level, Replicas: at.Replicas,
	}
	if at.URL != "" && level == streams.Fsync && len(at.Monitor) > 0 && len(at.Monitor) < at.Replicas {
		return nil, &streams.DurabilityError{
			Level:  level,
			Reason: fmt.Sprintf("%d of the servers are named to be asked whether they sync every write, and each stream is on %d", len(at.Monitor), at.Replicas),
			Remedy: "name the monitoring address of every server (-monitor), or accept less by naming level replicated",
		}
	}
	if l.o.SigningKey != "" {
		key, err := signature.Load(l.o.SigningKey)
		if err != nil {
			return nil, fmt.Errorf("node: key to sign with: %w", err)
		}
		o.Sign = key.Sign
	}
	if len(at.Monitor) > 0 {
		o.Probe = streams.MonitorProbe(at.Monitor...)
	}
	if l.dev != nil {
		o.Login, o.Probe = l.dev.login, l.dev.probe
	}
	if at.Disk != "" || at.URL == "" {
		o.Disk = l.disk
	}
	return o, nil
}

// embed starts a server in this process, and adds the access to it to the options.
func (l *link) embed(ctx context.Context, o *streams.Options) (err error) {
	if err := makeStore(l.o.Store); err != nil {
		return fmt.Errorf("node: store directory %s: %w; name another one with --store", l.o.Store, err)
	}
	l.server, err = natsserver.Start(ctx, &natsserver.Options{
		StoreDir: storeDir(l.o.Store), Port: l.o.NATS.Port, Private: l.o.NATS.Private, Lazy: o.Level == streams.Lazy,
		Space: natsserver.DiskSpace, Logger: l.o.Logger,
		// Of a node that was killed: this server rejects its passwords.
		Held: func() error { return supervise.ClearAttachment(l.o.Store) },
	})
	if err != nil {
		return err
	}
	if o.Sign == nil { // the server keeps others out of the directory
		key, err := signature.Open(filepath.Join(l.o.Store, signature.StoreFile))
		if err != nil {
			return fmt.Errorf("node: key to sign with: %w", err)
		}
		o.Sign = key.Sign
	}
	// A small disk gets small streams; package streams rejects a disk that is too
	// small.
	o.StoreBytes = max(streams.MinStoreBytes, min(streams.DefaultStoreBytes, l.server.MaxStore()))
	o.Alone, o.NewPartitions = true, streams.EmbeddedPartitions
	o.Dialer = func() (net.Conn, error) { return l.server.Dial() }
	o.User, o.Password = l.server.Node()
	o.Probe = func(context.Context) ([]streams.SyncState, error) {
		always, interval, err := l.server.Sync()
		return []streams.SyncState{{Server: l.server.Name(), Always: always, Interval: interval}}, err
	}
	return nil
}

// connect starts the embedded server, if one is configured, and connects to it with all
// rights of a node.
func (l *link) connect(ctx context.Context) error {
	o, err := l.streams()
	if err != nil {
		return err
	}
	if l.o.NATS.URL == "" {
		if err := l.embed(ctx, o); err != nil {
			return err
		}
	}
	l.login = o.Options
	if l.server == nil && l.dev == nil {
		t, err := api.BoundTo(ctx, &o.Options)
		if err != nil {
			return err
		}
		if t != "" {
			return l.bind(ctx, t, o)
		}
	}
	pool, role := l.o.Fleet.Pool, permission.RoleNode
	if l.o.HTTP.Web != "" && l.server == nil {
		role = permission.RoleRouter
	}
	if l.o.Fleet.Routing != RouteOnly && pool == RouterPool {
		return fmt.Errorf("node: pool %s is the routers', whose offer of auto and fanout it would replace: give the pool of this node another name", RouterPool)
	}
	if of, bound := messages.PoolOf(pool); bound {
		return foreignPool(pool, of)
	}
	if l.conn, err = api.Connect(ctx, o); err != nil {
		return err
	}
	l.install()
	if err := l.conn.Conn.Require(ctx, role, permission.Place{Generation: l.conn.Streams.Generation(), Partitions: l.conn.Streams.Partitions()}); err != nil {
		return err
	}
	err = l.conn.Streams.Provision(ctx)
	if l.server != nil && l.server.MaxStore() < streams.MinStoreBytes && errors.Is(err, conn.ErrFull) {
		return fmt.Errorf("node: store directory %s: a store may take three quarters of its disk's free space, %d MiB, and a new one needs %d MiB: "+
			"free some space or name another directory with --store: %w", l.o.Store, l.server.MaxStore()>>20, streams.MinStoreBytes>>20, conn.ErrFull)
	}
	return err
}

// disk returns the state of the streams' disk, if this process can read it.
func (l *link) disk() streams.Disk {
	var d natsserver.Disk
	if l.server != nil {
		d = l.server.Disk()
	} else if space, err := natsserver.DiskSpace(l.o.NATS.Disk); err == nil {
		d.Space = space
	}
	if d.Total == 0 {
		return streams.Disk{} // the disk could not be read
	}
	return streams.Disk{Free: d.Free, Total: d.Total, Kept: d.Kept(), FreeFiles: d.FreeFiles, KeptFiles: d.KeptFiles(), Failed: d.Failed}
}

// stuckLast bounds how long a closing node waits for anything while no data can be stored:
// no end could be recorded.
const stuckLast = 400 * time.Millisecond

// lasts returns how long a closing node waits for an operation with a limit.
func (l *link) lasts(limit time.Duration) time.Duration {
	if l.disk().Room() == streams.RoomNone {
		return min(limit, stuckLast)
	}
	return limit
}

// waiting returns the runs that wait for slots, per pool. A node that is bound to a
// tenant receives no relay's messages and returns none.
func (l *link) waiting(ctx context.Context) ([]dispatch.PoolWaiting, error) {
	if l.bound != nil {
		return nil, nil
	}
	return l.conn.Dispatch.Waiting(ctx)
}

// close ends the connection and the embedded server.
func (l *link) close() error {
	var errs []error
	if l.server != nil {
		errs = append(errs, supervise.RemoveAttachment(l.o.Store))
	}
	if l.conn != nil {
		errs = append(errs, l.conn.Conn.Close())
	}
	if l.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), natsserver.DefaultStartTimeout)
		errs = append(errs, l.server.Shutdown(ctx))
		cancel()
	}
	return errors.Join(errs...)
}

// attachable writes this node's address and credentials into its store. gossip is the
// node's address there, for nodes that join it with Options.Dev, and w its web, nil without
// one.
func (l *link) attachable(gossip string, w *web) error {
	if l.server == nil || l.server.URL() == "" {
		return nil
	}
	user, password := l.server.Node()
	toolUser, toolPassword := l.server.Tool()
	operatorUser, operatorPassword := l.server.Operator()
	a := supervise.Attachment{
		PID: os.Getpid(), URL: l.server.URL(), User: user, Password: password, Level: l.o.NATS.Level,
		ToolUser: toolUser, ToolPassword: toolPassword, OperatorUser: operatorUser, OperatorPassword: operatorPassword,
	}
	if gossip != "" && l.o.Fleet.Gossip.Label == devLabel {
		a.Gossip, a.GossipKey = gossip, l.o.Fleet.Gossip.Key
	}
	if w != nil {
		a.HTTP, a.HTTPLocal, a.Opener = w.url.String(), "http://"+w.listener.Addr().String(), w.opener
	}
	return a.Write(l.o.Store)
}
