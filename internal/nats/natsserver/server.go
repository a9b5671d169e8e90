// Package natsserver runs a NATS server with JetStream inside this process: the whole
// engine of Rath on one machine.
//
// A started server owns one store directory, which it locks, so that two processes can
// never write the same streams. By default every write is synced to disk before it is
// acknowledged; if the layout of the files is known, many writes share one sync, see gate.
// The server listens on no socket and is reached with [Server.Dial]; with a port it serves
// clients on the machine as well.
//
//	srv, err := natsserver.Start(ctx, &natsserver.Options{StoreDir: dir, Port: 4222})
//	if err != nil {
//		return err
//	}
//	defer srv.Shutdown(context.Background())
//	user, password := srv.Node()
//	// connect with srv.Dial, user and password
//
// Four kinds of clients exist, unless [Options.Open] permits everything to everybody. A
// client without credentials is the user "anonymous" of tenant "default" and may submit,
// approve, operate, query and watch there. A program with tools may also announce and serve
// them there. The node may do everything except delete and purge. The operator may do
// everything. With [Options.Grant] each client has exactly the permissions that it returns.
//
// Servers with [Options.Cluster] form a JetStream cluster, for tests of a fleet with one
// server per process. Production runs an external three-server cluster. The package does
// not depend on Rath's streams.
package natsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/nats/permission"
)

// loginWithin is how long a client may take to send its credentials. The server's own 2 s
// are less than clients wait, and too little for a process on a machine that has other work.
const loginWithin = 10 * time.Second

// DefaultStartTimeout bounds how long Start waits for the server, including the recovery of
// the store directory.
const DefaultStartTimeout = time.Minute

// Options configure a server. Only StoreDir is required.
type Options struct {
	// StoreDir is the directory of JetStream's files; it is created if absent.
	StoreDir string
	// Port listens for clients on Host; 0 listens on no socket, so that only
	// Dial reaches the server; -1 picks a free port, see URL.
	Port int
	// Host is the address to listen on; empty means 127.0.0.1.
	Host string
	// Name is the server's name; empty means "rath".
	Name string
	// Lazy acknowledges writes before they are synced to disk: a power cut
	// may lose up to the last two minutes. The default syncs first.
	Lazy bool
	// MaxStore and MaxMemory bound JetStream's disk and memory in bytes. Zero means three
	// quarters of the free space when the server starts.
	MaxStore, MaxMemory int64
	// Open disables access control: every client may do everything. It is for tests and
	// benchmarks.
	Open bool
	// Private refuses clients without credentials.
	Private bool
	// NodePassword, OperatorPassword and ToolPassword let another process log
	// in as user "node", "operator" or "tool". Empty means a generated one that
	// lives in memory only, see Node, Operator and Tool.
	NodePassword, OperatorPassword, ToolPassword string
	// RouterPassword and GatewayPassword are those of the users of the web, see Router.
	RouterPassword, GatewayPassword string
	// Users are further users, each with a password as its secret.
	Users []permission.User
	// Grant returns the permissions of a role, nil for everything. If Grant is nil, clients
	// and tools have the permissions of permission.GrantOf, the node may do everything
	// except delete and purge, and the operator everything. It is not passed to another
	// process with the options.
	Grant func(r permission.Role, at permission.Place) *permission.Grant `json:"-"`
	// Cluster makes the server one of a cluster; it needs a Port and a Name of
	// its own, and the same passwords as the others.
	Cluster *Cluster
	// MonitorPort answers monitoring requests on Host; 0 is none.
	MonitorPort int
	// PingInterval is how often the server pings its clients and peers; two unanswered
	// pings end the connection. Zero is nats-server's own, two minutes.
	PingInterval time.Duration
	// StartTimeout bounds Start; zero means DefaultStartTimeout. A server of a cluster is
	// started when clients can connect: /healthz at MonitorPort shows whether the cluster
	// has a leader.
	StartTimeout time.Duration
	// Space returns the space on the disk of the store directory, such as DiskSpace: then
	// the server keeps a reserve there, see Space.Kept, and restarts by itself when the
	// disk was full and has room. Nil keeps no reserve and does not restart a server that
	// met a write error; the operator restarts a server of a cluster.
	Space func(dir string) (Space, error) `json:"-"`
	// SyncFile syncs a file or a directory in rounds, on any file system; nil asks the
	// kernel. It is for tests that examine the state a power cut would leave.
	SyncFile func(path string) error `json:"-"`
	// Held, if not nil, is called when the directory is locked for this server, and before
	// clients can connect; an error fails Start.
	Held func() error `json:"-"`
	// Logger receives the server's log; nil discards it. Notices are logged
	// at debug level.
	Logger *slog.Logger
}

// Server is a running NATS server. It is safe for concurrent use.
type Server struct {
	srv      atomic.Pointer[server.Server]
	o        Options
	lock     *dirLock
	gate     *gate  // nil: the server syncs each write by itself
	files    *files // of the gate
	port     *port  // with a gate
	log      *adapter
	dir      string
	open     bool
	node     string
	operator string
	tool     string

	stop sync.Once
	done chan struct{}

	untend context.CancelFunc // ends tend
	tended chan struct{}      // closed when it has ended
	mu     sync.Mutex
	disk   Disk
}

// Start checks and locks the store directory, starts a server on it and returns when
// clients can connect. Its errors are ErrNoStoreDir, ErrStoreReadOnly, ErrStoreFull and
// *InUseError (which is ErrStoreInUse) for the directory, and ErrPortInUse for the port.
// After an error no server or lock is left. The caller that started a server shuts it down.
func Start(ctx context.Context, opts *Options) (_ *Server, err error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.setDefaults()
	if err := prepareDir(o.StoreDir); err != nil {
		return nil, err
	}
	lock, err := lockDir(o.StoreDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.release())
		}
	}()
	if err := probeWritable(o.StoreDir); err != nil {
		return nil, err
	}
	if o.Held != nil {
		if err := o.Held(); err != nil {
			return nil, err
		}
	}
	for _, port := range o.ports() {
		if err := probePort(ctx, o.Host, port); err != nil {
			return nil, err
		}
	}

	s := &Server{
		lock: lock, log: newAdapter(o.Logger), dir: o.StoreDir, open: o.Open, o: o,
		node: o.NodePassword, operator: o.OperatorPassword, tool: o.ToolPassword, done: make(chan struct{}), tended: make(chan struct{}),
	}
	if err := s.openGate(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeGate())
		}
	}()
	srv, err := s.boot(ctx)
	if err != nil {
		return nil, err
	}
	s.srv.Store(srv)
	if err := s.openPort(ctx); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	if addr, ok := srv.Addr().(*net.TCPAddr); ok {
		s.o.Port = addr.Port // also when it starts again
	}
	s.o.MaxStore = s.MaxStore()
	if o.Space == nil || o.Cluster != nil {
		s.untend = func() {}
		close(s.tended)
		return s, nil
	}
	ctx, s.untend = context.WithCancel(context.WithoutCancel(ctx))
	k := &keeper{s: s, rest: restFirst}
	go s.tend(ctx, k, k.look(ctx))
	return s, nil
}

// boot starts a server over the directory.
func (s *Server) boot(ctx context.Context) (*server.Server, error) {
	conf, err := s.o.server()
	if err != nil {
		return nil, err
	}
	if s.gate != nil {
		conf.SyncAlways, conf.DontListen = false, true
		conf.Host, conf.Port = "127.0.0.1", -1
		s.files.suspect() // it may read data that an earlier process did not sync
	}
	srv, err := server.NewServer(conf)
	if err != nil {
		return nil, fmt.Errorf("natsserver: configure: %w", err)
	}
	s.log.begin()
	srv.SetLoggerV2(s.log, false, false, false)
	srv.Start()
	if err := s.ready(ctx, srv, s.o.StartTimeout); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, err
	}
	return srv, nil
}

// openGate makes the server sync writes in rounds, if that is shown to lose none. A process
// that asks a monitoring port for the sync settings would get the server's own, and servers
// of a cluster notify each other of stored messages; such servers have no gate.
func (s *Server) openGate() error {
	if s.o.Lazy || s.o.Cluster != nil || s.o.MonitorPort != 0 {
		return forgetFiles(s.dir)
	}
	var err error
	if s.o.SyncFile == nil {
		err = unknown(s.dir)
	}
	if err == nil {
		s.files, err = openFiles(s.dir, s.o.SyncFile)
	}
	if err != nil {
		s.log.Debugf("store directory %s: the server syncs each write by itself: %v", s.dir, err)
		return forgetFiles(s.dir)
	}
	s.gate = newGate(s.files.sync)
	return nil
}

// openPort listens on the port, if one is configured and the server does not listen itself.
func (s *Server) openPort(ctx context.Context) error {
	if s.gate == nil || s.o.Port == 0 {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(s.o.Host, strconv.Itoa(max(s.o.Port, 0))))
	if err != nil {
		return fmt.Errorf("natsserver: listen: %w", err)
	}
	s.port = openPort(l, s.Dial)
	return nil
}

// closeGate is called after the server's end.
func (s *Server) closeGate() error {
	if s.gate == nil {
		return nil
	}
	var err error
	if s.port != nil {
		if err = s.port.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	return errors.Join(err, s.gate.close(s.files.close))
}

func (o *Options) setDefaults() {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Name == "" {
		o.Name = "rath"
	}
	if o.StartTimeout <= 0 {
		o.StartTimeout = DefaultStartTimeout
	}
	if o.NodePassword == "" {
		o.NodePassword = newPassword()
	}
	if o.OperatorPassword == "" {
		o.OperatorPassword = newPassword()
	}
	if o.ToolPassword == "" {
		o.ToolPassword = newPassword()
	}
	if o.RouterPassword == "" {
		o.RouterPassword = newPassword()
	}
	if o.GatewayPassword == "" {
		o.GatewayPassword = newPassword()
	}
}

// server translates the options into nats-server's.
func (o *Options) server() (*server.Options, error) {
	conf := new(server.Options)
	if !o.Open {
		text, err := o.accessConfig()
		if err != nil {
			return nil, err
		}
		if err := conf.ProcessConfigString(text); err != nil {
			return nil, fmt.Errorf("natsserver: access configuration: %w", err)
		}
	}
	conf.ServerName = o.Name
	conf.Host, conf.Port = o.Host, o.Port
	conf.DontListen = o.Port == 0
	if conf.DontListen {
		conf.Port = -1
	}
	conf.NoSigs, conf.NoLog = true, true
	conf.JetStream = true
	conf.StoreDir = o.StoreDir
	conf.SyncAlways = !o.Lazy
	conf.JetStreamMaxStore, conf.JetStreamMaxMemory = o.MaxStore, o.MaxMemory
	conf.DisableJetStreamBanner = true
	conf.PingInterval = o.PingInterval
	conf.AuthTimeout = loginWithin.Seconds()
	if o.MonitorPort != 0 {
		conf.HTTPHost, conf.HTTPPort = o.Host, o.MonitorPort
	}
	if o.Cluster != nil {
		o.Cluster.apply(conf)
	}
	return conf, nil
}

// ready waits until clients can connect. The server only logs a fatal error, because it
// does not own this process; ready returns it.
func (s *Server) ready(ctx context.Context, srv *server.Server, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		if cause := s.log.fatal(); cause != "" {
			return fmt.Errorf("natsserver: start on store directory %s: %s", s.dir, cause)
		}
		if srv.ReadyForConnections(100 * time.Millisecond) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("natsserver: start on store directory %s: %w", s.dir, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("natsserver: not ready after %v on store directory %s; allow more with StartTimeout if it holds much data", limit, s.dir)
		}
	}
}

// Dial opens a connection inside the process; no socket is involved.
func (s *Server) Dial() (net.Conn, error) {
	if err := s.Err(); err != nil {
		return nil, err
	}
	conn, err := s.srv.Load().InProcessConn()
	if err != nil {
		return nil, fmt.Errorf("natsserver: dial in process: %w", err)
	}
	if s.gate == nil {
		return conn, nil
	}
	return hold(conn, s.gate), nil
}

// URL is where clients on this machine connect, or empty when the server
// listens on no socket. It holds no credentials.
func (s *Server) URL() string {
	listens := s.srv.Load().Addr()
	if s.port != nil {
		listens = s.port.Addr()
	}
	addr, ok := listens.(*net.TCPAddr)
	if !ok {
		return ""
	}
	return "nats://" + net.JoinHostPort(addr.IP.String(), strconv.Itoa(addr.Port))
}

// StoreDir is the directory the server has locked.
func (s *Server) StoreDir() string { return s.dir }

// Node returns the credentials of the node, both empty when access is open.
func (s *Server) Node() (user, password string) { return s.credentials(nodeUser, s.node) }

// Operator returns the credentials of the operator, both empty when access is
// open.
func (s *Server) Operator() (user, password string) { return s.credentials(operatorUser, s.operator) }

// Tool returns the credentials of programs that have tools, both empty when
// access is open.
func (s *Server) Tool() (user, password string) { return s.credentials(toolUser, s.tool) }

// Router returns the credentials of the web for tokens and page sessions, and Gateway those
// for its users' requests, all empty when access is open.
func (s *Server) Router() (user, password string) {
	return s.credentials(routerUser, s.o.RouterPassword)
}

// Gateway is described at Router.
func (s *Server) Gateway() (user, password string) {
	return s.credentials(gatewayUser, s.o.GatewayPassword)
}

func (s *Server) credentials(user, password string) (string, string) {
	if s.open {
		return "", ""
	}
	return user, password
}

// MaxStore returns the bytes that JetStream may keep on disk: the value of the Options, or
// three quarters of the space that was free at the start.
func (s *Server) MaxStore() int64 {
	if c := s.srv.Load().JetStreamConfig(); c != nil {
		return c.MaxStore
	}
	return 0
}

// Sync reports whether each write is synced to disk before it is acknowledged, and the
// interval otherwise. It returns the running server's own state, or true if a round
// precedes each acknowledgement.
func (s *Server) Sync() (always bool, interval time.Duration, err error) {
	v, err := s.srv.Load().Varz(nil)
	if err != nil {
		return false, 0, fmt.Errorf("natsserver: read the server's state: %w", err)
	}
	if v.JetStream.Config == nil {
		return false, 0, errors.New("natsserver: JetStream is not running; see the server's log for the write error that stopped it")
	}
	return s.gate != nil || v.JetStream.Config.SyncAlways, v.JetStream.Config.SyncInterval, nil
}

// Failed is closed when writes could not be synced: see Err. Then no write is acknowledged
// any more, and the process should end.
func (s *Server) Failed() <-chan struct{} {
	if s.gate == nil {
		return nil
	}
	return s.gate.failed
}

// Err is an ErrSync once Failed is closed, and nil before.
func (s *Server) Err() error {
	if s.gate == nil {
		return nil
	}
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return s.gate.err
}

// Name is the server's name.
func (s *Server) Name() string { return s.srv.Load().Name() }

// Done is closed when the server has ended after Shutdown.
func (s *Server) Done() <-chan struct{} { return s.done }

// Shutdown stops the server, waits for it and releases the store directory. Close or drain
// the clients first. If ctx ends first, Shutdown returns its error and the server continues
// to stop; a further call waits again. Shutdown may be called more than once and
// concurrently.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() { go s.end((*server.Server).Shutdown) })
	return s.ended(ctx)
}

// Retire is Shutdown for a server of a cluster whose other servers continue: it first
// transfers its leaderships to them and asks its clients, over the duration in Cluster, to
// connect to another server.
func (s *Server) Retire(ctx context.Context) error {
	s.stop.Do(func() { go s.end((*server.Server).LameDuckShutdown) })
	return s.ended(ctx)
}

func (s *Server) end(shutdown func(*server.Server)) {
	defer close(s.done)
	s.untend()
	<-s.tended
	srv := s.srv.Load()
	if s.port != nil {
		if err := s.port.Listener.Close(); err != nil {
			s.log.Errorf("close the port: %v", err)
		}
	}
	if !srv.JetStreamIsClustered() && left(srv) {
		// Else the server would give the clients of pending pull requests 50 ms to
		// learn that these end, also clients that have left.
		if err := srv.ShutdownJetStream(); err != nil {
			s.log.Errorf("stop JetStream: %v", err)
		}
	}
	shutdown(srv)
	srv.Shutdown() // a no-op if it has stopped
	srv.WaitForShutdown()
	if err := s.closeGate(); err != nil {
		s.log.Errorf("close the files of store directory %s: %v", s.dir, err)
	}
	if err := s.lock.release(); err != nil {
		s.log.Errorf("release store directory %s: %v", s.dir, err)
	}
}

// leftWithin is how long a server may take to notice that its clients have left.
const leftWithin = 10 * time.Millisecond

// left reports whether all clients of a server have left.
func left(srv *server.Server) bool {
	for began := time.Now(); srv.NumClients() > 0; time.Sleep(leftWithin / 20) {
		if time.Since(began) > leftWithin {
			return false
		}
	}
	return true
}

func (s *Server) ended(ctx context.Context) error {
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("natsserver: shut down: %w", ctx.Err())
	}
}

// probePort fails when a configured port is in use: the server itself would only log it.
func probePort(ctx context.Context, host string, port int) error {
	if port <= 0 {
		return nil
	}
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("%w: %s: %w; stop the other process or choose another one with --port", ErrPortInUse, addr, cause(err))
	}
	return l.Close()
}

// cause is why a socket was refused, without the call and the address.
func cause(err error) error {
	if e, ok := errors.AsType[*os.SyscallError](err); ok {
		return e.Err
	}
	return err
}

// prepareDir makes the directory absolute in effect: it must exist before it
// can be locked.
func prepareDir(dir string) error {
	if dir == "" {
		return ErrNoStoreDir
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return classify(dir, err)
	}
	return nil
}
