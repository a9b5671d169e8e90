package eventlog

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
)

// Conn is what the tests connect.
type Conn = Logs

func TestMain(m *testing.M) { natstest.Main(m) }

func connect(ctx context.Context, o *streams.Options) (*Conn, error) {
	st, err := streams.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return NewLogs(st), nil
}

// nodeOptions are those of a node beside the server.
func nodeOptions(srv *natsserver.Server) *streams.Options {
	user, password := srv.Node()
	return &streams.Options{
		Options: conn.Options{Dialer: srv.Dial, Name: "test", User: user, Password: password, Inbox: conn.NodeInbox},
		Probe: func(context.Context) ([]streams.SyncState, error) {
			always, interval, err := srv.Sync()
			return []streams.SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
		},
		Partitions: 2,
	}
}

// dial connects and closes the connection when the test ends.
func dial(tb testing.TB, o *streams.Options) *Conn {
	tb.Helper()
	c, err := connect(tb.Context(), o)
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

// open starts a server and returns a node's connection to its streams.
func open(tb testing.TB) *Conn {
	tb.Helper()
	c := dial(tb, nodeOptions(natstest.Start(tb, nil)))
	if err := c.Provision(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return c
}

// operator connects with all rights.
func operator(tb testing.TB, srv *natsserver.Server) *Conn {
	tb.Helper()
	o := nodeOptions(srv)
	o.User, o.Password = srv.Operator()
	return dial(tb, o)
}

func besideOperator(t *testing.T, f func(t *testing.T, c, op *Conn)) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		c := dial(t, nodeOptions(srv))
		if err := c.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(t, c, operator(t, srv))
	})
}
