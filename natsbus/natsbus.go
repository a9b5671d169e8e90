package natsbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/session"
)

const (
	// pingEvery is how often a connection that is silent is tested, and
	// writeFor how long a write may take before it counts as lost.
	pingEvery = 2 * time.Second
	writeFor  = 10 * time.Second
	// pingsFar and pingsHere are how many tests may be open before a server counts as
	// lost. One on this machine that is gone breaks the connection, and one whose disk
	// takes seconds for each write answers nothing for as long.
	pingsFar, pingsHere = 2, 15
)

var (
	// ErrUnreachable is returned by Connect when no server answers.
	ErrUnreachable = errors.New("natsbus: no NATS server reachable")
	// ErrDenied is returned by Connect when the servers refuse the credentials,
	// and by what needs a permission that these lack (a *PermissionError).
	ErrDenied = errors.New("natsbus: NATS refused the credentials")
	// ErrClientOnly is returned for what a connection with Options.Client
	// cannot do.
	ErrClientOnly = errors.New("natsbus: this connection does not store; connect without Options.Client")
)

// Conn is a connection. It reconnects by itself for as long as it is open. It
// is safe for concurrent use.
type Conn struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	o    Options
	gate gate
	// refusals ends requests that the servers refuse.
	refusals refusals
	// watermarks is how far the relays of this process are.
	watermarks *watermarks
	// capacity is how full the event streams are, see WatchRoom.
	capacity *capacity
	// recent are the commits that the relays of this process have decoded.
	recent *recent
	// host takes what is dispatched to this process; nil while it takes nothing.
	host         atomic.Pointer[gateway]
	tenantUsages tenantUsages
	foreign      foreignCounts
	link         atomic.Pointer[link]
	// dials counts the connections that were begun, each before anything is
	// sent over it. The client's own count of reconnects is behind its lock,
	// which it holds while it writes.
	dials atomic.Uint64
	// renewed is the last renewal of this node's entry, nil before there was one.
	renewed atomic.Pointer[renewal]
	closed  chan struct{}
	// place is EventSubject, but for tests whose ids are not minted.
	place func(session.Key) (stream, subject string, err error)
}

// link is one connection to one server; ctx ends with it.
type link struct {
	ctx context.Context
	cut context.CancelFunc
}

// relink ends what waits for an answer on the link before: it will not come.
func (c *Conn) relink() {
	l := &link{}
	l.ctx, l.cut = context.WithCancel(context.Background())
	if old := c.link.Swap(l); old != nil {
		old.cut()
	}
	c.refusals.cut()
}

// Connect connects and, unless Options.Client is set, verifies that the
// servers store as the level demands. It fails at once when no server answers
// (ErrUnreachable), when they refuse the credentials (ErrDenied) and when they
// promise less (ErrDurability).
func Connect(ctx context.Context, opts *Options) (*Conn, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("natsbus: connect: %w", err)
	}
	c := &Conn{
		o: o, gate: newGate(), watermarks: newWatermarks(), capacity: newCapacity(), recent: newRecent(), closed: make(chan struct{}), place: EventSubject,
	}
	c.relink()
	found := o.Partitions != 0 || o.Client
	if o.Partitions == 0 {
		c.o.Partitions = cmp.Or(o.NewPartitions, DefaultPartitions)
	}
	nopts, err := c.natsOptions(ctx)
	if err != nil {
		return nil, err
	}
	if c.nc, err = nats.Connect(o.URL, nopts...); err != nil {
		return nil, o.connectError(err)
	}
	c.js, err = jetstream.New(c.nc)
	if err == nil && !o.Client {
		err = c.Durable(ctx)
	}
	if err == nil && !found {
		err = c.findPartitions(ctx)
	}
	if err != nil {
		c.nc.Close()
		return nil, err
	}
	return c, nil
}

// findPartitions asks how many partitions the generation has, if it is there.
func (c *Conn) findPartitions(ctx context.Context) error {
	name := EventStream(c.o.Generation, 0)
	first, _, err := c.findStream(ctx, &election{log: c.o.Logger}, jetstream.StreamConfig{Name: name})
	if err != nil {
		return c.o.provisionError(jetstream.StreamConfig{Name: name}, err)
	}
	if first == nil {
		return nil
	}
	// A build that did not note the number made as many as are the default.
	n, err := partitionsOf(&first.Config)
	if n != 0 {
		c.o.Partitions = n
	}
	return err
}

func (c *Conn) natsOptions(ctx context.Context) ([]nats.Option, error) {
	o := &c.o
	timeout := o.ConnectTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(deadline), time.Millisecond))
	}
	pings := pingsFar
	if o.here() {
		pings = pingsHere
	}
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.Timeout(timeout),
		nats.Dialer(&net.Dialer{Timeout: timeout, Control: func(string, string, syscall.RawConn) error {
			c.dials.Add(1)
			return nil
		}}),
		nats.DrainTimeout(o.DrainTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 250*time.Millisecond),
		nats.IgnoreAuthErrorAbort(),
		// A host that is gone says nothing: without these it takes minutes to
		// notice.
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pings),
		nats.FlusherTimeout(writeFor),
		// What cannot be sent now is the caller's to retry: a buffer would
		// send it at a time that nobody expects.
		nats.ReconnectBufSize(-1),
		nats.ClosedHandler(func(*nats.Conn) {
			c.link.Load().cut()
			close(c.closed)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.relink()
			c.refusals.forget()
			if err != nil {
				o.Logger.Warn("NATS connection lost, reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			o.Logger.Info("NATS connection restored", "server", nc.ConnectedServerName())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if e := violated(err); e != nil {
				if c.refusals.refuse(e, o.inbox()) {
					return // whoever asked is told
				}
			}
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			o.Logger.Error("NATS reports an error", "subject", subject, "err", err)
		}),
	}
	if o.Dialer != nil {
		opts = append(opts, nats.InProcessServer(inProcess(func() (net.Conn, error) {
			conn, err := o.Dialer()
			if err == nil {
				c.dials.Add(1)
			}
			return conn, err
		})))
	}
	if o.Inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(o.Inbox))
	}
	if o.RootCAs != "" {
		opts = append(opts, nats.RootCAs(o.RootCAs))
	}
	switch {
	case o.CredsFile != "":
		opts = append(opts, nats.UserCredentials(o.CredsFile))
	case o.NKeyFile != "":
		key, err := nats.NkeyOptionFromSeed(o.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("natsbus: read the nkey seed in %s: %w", o.NKeyFile, err)
		}
		opts = append(opts, key)
	case o.Login != nil:
		opts = append(opts, nats.UserInfoHandler(o.Login))
	case o.User != "":
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	return opts, nil
}

// inProcess is a Dialer in the shape that the NATS client takes.
type inProcess func() (net.Conn, error)

// InProcessConn implements nats.InProcessConnProvider.
func (d inProcess) InProcessConn() (net.Conn, error) { return d() }

// Servers names the servers as people may read it, without the credentials that
// their addresses may hold.
func (c *Conn) Servers() string { return c.o.where() }

func (o *Options) connectError(err error) error {
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return fmt.Errorf("%w: %s: %w; check the user and its credentials", ErrDenied, o.where(), err)
	}
	return fmt.Errorf("%w: %s: %w; start a server there or name another one", ErrUnreachable, o.where(), err)
}

// Close lets subscriptions finish what they have received, sends what is
// buffered and closes the connection, within Options.DrainTimeout. It may be
// called more than once.
func (c *Conn) Close() error {
	if err := c.nc.Drain(); err != nil {
		// Not connected: there is nothing to drain.
		c.nc.Close()
	}
	// The client bounds draining itself; the margin is for its last flush.
	timer := time.NewTimer(c.o.DrainTimeout + 5*time.Second)
	defer timer.Stop()
	select {
	case <-c.closed:
		return nil
	case <-timer.C:
		c.nc.Close()
		return fmt.Errorf("natsbus: not drained after %v; what was not sent is lost", c.o.DrainTimeout)
	}
}

// Closed is closed when the connection has ended for good.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Connected reports whether a server is connected at this moment.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Generation and Partitions say which event streams new sessions use.
func (c *Conn) Generation() uint32 { return c.o.Generation }

// Partitions is the number of event streams of the generation.
func (c *Conn) Partitions() uint32 { return c.o.Partitions }
