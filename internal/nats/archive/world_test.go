package archive

import (
	"context"
	"testing"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
)

// Conn is what the tests connect.
type Conn = Archive

func TestMain(m *testing.M) { natstest.Main(m) }

func connect(ctx context.Context, o *streams.Options) (*Conn, error) {
	st, err := streams.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return NewArchive(project.NewProjections(eventlog.NewLogs(st))), nil
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
