package streamstest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// Probe returns the sync configuration of an embedded server.
func Probe(srv *natsserver.Server) streams.Probe {
	return func(context.Context) ([]streams.SyncState, error) {
		always, interval, err := srv.Sync()
		return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
	}
}

// NodeOptions are the options of a node beside the server, with two partitions.
func NodeOptions(srv *natsserver.Server) *streams.Options {
	user, password := srv.Node()
	return &streams.Options{
		Options: conn.Options{Dialer: srv.Dial, Name: "test", User: user, Password: password, Inbox: conn.NodeInbox},
		Probe:   Probe(srv), Partitions: 2,
	}
}

// ClusterOptions are the options of a node of a cluster whose servers all sync.
func ClusterOptions(c *natstest.Cluster, first int) *streams.Options {
	return &streams.Options{
		Options: conn.Options{URL: c.URLs(first)}, Replicas: 3, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "all", Always: true}}, nil
		},
	}
}

// A Layer builds the part under test over open streams. Its methods end the test on an
// error, and close each connection when the test ends.
type Layer[C any] func(*streams.Streams) C

// Dial connects.
func (l Layer[C]) Dial(tb testing.TB, o *streams.Options) C {
	tb.Helper()
	return l(open(tb, o))
}

func open(tb testing.TB, o *streams.Options) *streams.Streams {
	tb.Helper()
	s := must.Get(streams.OpenStore(tb.Context(), o))(tb)
	tb.Cleanup(func() {
		must.Report(tb, s.Conn.Close())
	})
	return s
}

// provisioned connects and sets the streams up.
func (l Layer[C]) provisioned(tb testing.TB, o *streams.Options) C {
	tb.Helper()
	s := open(tb, o)
	must.Do(tb, s.Provision(tb.Context()))
	return l(s)
}

// DialThrough connects through the wire, which passes everything on again when the
// test ends and closes the connection.
func (l Layer[C]) DialThrough(tb testing.TB, w *natstest.Wire, o *streams.Options) C {
	tb.Helper()
	c := l.Dial(tb, through(w, o))
	tb.Cleanup(func() { w.Set(nil, nil) })
	return c
}

func through(w *natstest.Wire, o *streams.Options) *streams.Options {
	wired := *o
	wired.Dialer = w.Through(o.Dialer)
	return &wired
}

// Open starts a server and returns a node's connection to its streams.
func (l Layer[C]) Open(tb testing.TB) C {
	tb.Helper()
	return l.provisioned(tb, NodeOptions(natstest.Start(tb, nil)))
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
		c := l.provisioned(t, through(w, NodeOptions(natstest.Start(t, nil))))
		t.Cleanup(func() { w.Set(nil, nil) })
		test(t, c, w)
	})
}

// BesideOperator runs a test in virtual time, with the connections of a node and of an
// operator.
func (l Layer[C]) BesideOperator(t *testing.T, test func(t *testing.T, c, operator C)) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		c := l.provisioned(t, NodeOptions(srv))
		test(t, c, l.Operator(t, srv))
	})
}
