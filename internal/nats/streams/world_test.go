package streams

import (
	"context"
	"testing"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// Conn is the type that the tests connect.
type Conn = Streams

func TestMain(m *testing.M) { natstest.Main(m) }

func connect(ctx context.Context, o *Options) (*Conn, error) {
	return OpenStore(ctx, o)
}

// nodeOptions are the options of a node beside the server.
func nodeOptions(srv *natsserver.Server) *Options {
	user, password := srv.Node()
	return &Options{
		Options: conn.Options{Dialer: srv.Dial, Name: "test", User: user, Password: password, Inbox: conn.NodeInbox},
		Probe: func(context.Context) ([]SyncState, error) {
			always, interval, err := srv.Sync()
			return []SyncState{{Server: srv.Name(), Always: always, Interval: interval}}, err
		},
		Partitions: 2,
	}
}

// dial connects and closes the connection when the test ends.
func dial(tb testing.TB, o *Options) *Conn {
	tb.Helper()
	c := must.Get(connect(tb.Context(), o))(tb)
	tb.Cleanup(func() { must.Report(tb, c.Conn.Close()) })
	return c
}

// open starts a server and returns a node's connection to its streams.
func open(tb testing.TB) *Conn {
	tb.Helper()
	c := dial(tb, nodeOptions(natstest.Start(tb, nil)))
	must.Do(tb, c.Provision(tb.Context()))
	return c
}
