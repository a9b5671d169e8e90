package streamstest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
)

// Probe asks an embedded server how it syncs.
func Probe(srv *natsserver.Server) streams.Probe {
	return func(context.Context) ([]streams.SyncState, error) {
		always, interval, err := srv.Sync()
		return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
	}
}

// NodeOptions are those of a node beside the server, with two partitions.
func NodeOptions(srv *natsserver.Server) *streams.Options {
	user, password := srv.Node()
	return &streams.Options{
		Options: conn.Options{Dialer: srv.Dial, Name: "test", User: user, Password: password, Inbox: conn.NodeInbox},
		Probe:   Probe(srv), Partitions: 2,
	}
}

// Conn is what a layer's connection can do in every layer.
type Conn interface {
	Provision(ctx context.Context) error
	Close() error
}

// A Layer opens connections of one layer. Its methods end the test if they cannot, and
// close what they opened when the test ends.
type Layer[C Conn] func(ctx context.Context, o *streams.Options) (C, error)

// Over is the layer that make builds over streams.
func Over[C Conn](make func(*streams.Streams) C) Layer[C] {
	return func(ctx context.Context, o *streams.Options) (c C, err error) {
		s, err := streams.OpenStore(ctx, o)
		if err != nil {
			return c, err
		}
		return make(s), nil
	}
}

// Dial connects.
func (l Layer[C]) Dial(tb testing.TB, o *streams.Options) C {
	tb.Helper()
	c, err := l(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// DialThrough connects through the wire, which passes everything on again when the
// test ends and closes the connection.
func (l Layer[C]) DialThrough(tb testing.TB, w *natstest.Wire, o *streams.Options) C {
	tb.Helper()
	wired := *o
	wired.Dialer = w.Through(o.Dialer)
	c := l.Dial(tb, &wired)
	tb.Cleanup(func() { w.Set(nil, nil) })
	return c
}

// Open starts a server and returns a node's connection to its streams.
func (l Layer[C]) Open(tb testing.TB) C {
	tb.Helper()
	c := l.Dial(tb, NodeOptions(natstest.Start(tb, nil)))
	provision(tb, c)
	return c
}

// Operator connects with all rights.
func (l Layer[C]) Operator(tb testing.TB, srv *natsserver.Server) C {
	tb.Helper()
	o := NodeOptions(srv)
	o.User, o.Password = srv.Operator()
	return l.Dial(tb, o)
}

// InBubble runs a test in virtual time, with a node's connection that the wire can
// disturb.
func (l Layer[C]) InBubble(t *testing.T, test func(t *testing.T, c C, w *natstest.Wire)) {
	synctest.Test(t, func(t *testing.T) {
		w := &natstest.Wire{}
		c := l.DialThrough(t, w, NodeOptions(natstest.Start(t, nil)))
		provision(t, c)
		test(t, c, w)
	})
}

// BesideOperator runs a test in virtual time, with the connections of a node and of an
// operator.
func (l Layer[C]) BesideOperator(t *testing.T, test func(t *testing.T, c, operator C)) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		c := l.Dial(t, NodeOptions(srv))
		provision(t, c)
		test(t, c, l.Operator(t, srv))
	})
}

func provision(tb testing.TB, c Conn) {
	tb.Helper()
	if err := c.Provision(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}
