package conn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pingEvery is how often a silent connection is tested, and writeFor how long a write
	// may take before it counts as lost.
	pingEvery = 2 * time.Second
	writeFor  = 10 * time.Second
	// pingsFar and pingsHere are the number of unanswered pings before a server counts as
	// lost. A dead server on this machine breaks the connection, and a server whose disk
	// takes seconds for each write does not answer for as long.
	pingsFar, pingsHere = 2, 15
)

var (
	// ErrUnreachable is returned by Connect when no server answers.
	ErrUnreachable = errors.New("nats/conn: no NATS server reachable")
	// ErrDenied is returned by Connect when the servers reject the credentials, and by
	// operations that need a missing permission (a *PermissionError).
	ErrDenied = errors.New("nats/conn: NATS rejected the credentials")
)

// Conn is a connection. It reconnects by itself while it is open. It is safe for concurrent
// use.
type Conn struct {
	// NC and JS serve operations that this package does not cover: plain messages and
	// subscriptions, streams and consumers.
	NC *nats.Conn
	JS jetstream.JetStream
	// Messages are the messages in streams.
	Messages *Messages
	// Logger logs events in the background.
	Logger *slog.Logger

	o Options
	// refusals ends requests that the servers refuse.
	refusals refusals
	attempts sync.Pool // that ended by an answer
	link     atomic.Pointer[link]
	// dials counts the connections begun, each before any message is sent over it. The
	// client's own count of reconnects is behind its lock, which it holds while it writes.
	dials  atomic.Uint64
	closed chan struct{}
}

// link is one connection to one server; ctx ends with it.
type link struct {
	ctx context.Context
	cut context.CancelFunc

	mu   sync.Mutex
	told bool      // the server was asked for info
	info *userInfo // the server's record of the credentials
}

// relink ends the requests on the previous link: their answers will not come.
func (c *Conn) relink() {
	l := &link{}
	l.ctx, l.cut = context.WithCancel(context.Background())
	if old := c.link.Swap(l); old != nil {
		old.cut()
	}
	c.refusals.cut()
}

// Connect connects. It fails at once when no server answers (ErrUnreachable) and when the
// servers reject the credentials (ErrDenied).
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
		return nil, fmt.Errorf("nats/conn: connect: %w", err)
	}
	c := &Conn{Logger: o.Logger, o: o, closed: make(chan struct{})}
	c.Messages = &Messages{c}
	c.relink()
	nopts, err := c.natsOptions(ctx)
	if err != nil {
		return nil, err
	}
	if c.NC, err = nats.Connect(o.URL, nopts...); err != nil {
		return nil, o.connectError(err)
	}
	if c.JS, err = jetstream.New(c.NC); err != nil {
		c.NC.Close()
		return nil, err
	}
	return c, nil
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
		// A dead host sends no error: without these settings it takes minutes to notice.
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pings),
		nats.FlusherTimeout(writeFor),
		// The caller retries a message that cannot be sent now: a buffer would send it at
		// an unexpected time.
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
					return // the asking side is answered
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
			return nil, fmt.Errorf("nats/conn: read the nkey seed in %s: %w", o.NKeyFile, err)
		}
		opts = append(opts, key)
	case o.Login != nil:
		opts = append(opts, nats.UserInfoHandler(o.Login))
	case o.User != "":
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	return opts, nil
}

// inProcess is a Dialer in the form that the NATS client expects.
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
	if file, ok := errors.AsType[*fs.PathError](err); ok { // no server was asked
		return fmt.Errorf("nats/conn: credentials or authorities for %s: %w; name a file that this user can read", o.where(), file)
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("%w: %s: %w; name the PEM file of its authority with NATS_CA", ErrUnreachable, o.where(), unknown)
	}
	return fmt.Errorf("%w: %s: %w; start a server there or name another one", ErrUnreachable, o.where(), err)
}

// Close lets subscriptions finish the messages they have received, sends buffered messages
// and closes the connection, within Options.DrainTimeout. It may be called more than once.
func (c *Conn) Close() error {
	if err := c.NC.Drain(); err != nil {
		// Not connected: no subscription to drain.
		c.NC.Close()
	}
	// The client bounds draining itself; the margin is for its last flush.
	timer := time.NewTimer(c.o.DrainTimeout + 5*time.Second)
	defer timer.Stop()
	select {
	case <-c.closed:
		return nil
	case <-timer.C:
		c.NC.Close()
		return fmt.Errorf("nats/conn: not drained after %v; unsent messages are lost", c.o.DrainTimeout)
	}
}

// Alone reports whether the server belongs to no cluster, see Options.Alone.
func (c *Conn) Alone() bool { return c.o.Alone }

// Closed is closed when the connection has ended for good.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Connected reports whether a server is connected at this moment.
func (c *Conn) Connected() bool { return c.NC.IsConnected() }

// Incarnation distinguishes the connections begun so far: it grows with each, from 1, and
// with attempts over a network that failed.
func (c *Conn) Incarnation() uint64 { return c.dials.Load() }

// Linked returns a context that ends with the current connection to a server.
func (c *Conn) Linked() context.Context { return c.link.Load().ctx }
