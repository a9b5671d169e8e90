package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/nats/archive"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/project"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/session"
)

// Conn is what the tests connect.
type Conn = Dispatch

func TestMain(m *testing.M) { natstest.Main(m) }

func connect(ctx context.Context, o *streams.Options) (*Conn, error) {
	st, err := streams.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return NewDispatch(archive.NewArchive(project.NewProjections(eventlog.NewLogs(st)))), nil
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

// dialThrough connects through the wire, which passes everything on again when the
// test ends and closes the connection.
func dialThrough(tb testing.TB, w *natstest.Wire, o *streams.Options) *Conn {
	tb.Helper()
	wired := *o
	wired.Dialer = w.Through(o.Dialer)
	c := dial(tb, &wired)
	tb.Cleanup(func() { w.Set(nil, nil) })
	return c
}

// inBubble tests over a wire, in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, c *Conn, w *natstest.Wire)) {
	synctest.Test(t, func(t *testing.T) {
		w := &natstest.Wire{}
		c := dialThrough(t, w, nodeOptions(natstest.Start(t, nil)))
		if err := c.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, c, w)
	})
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

// buried makes a session of five commits, of which the last one archives it,
// and purges it. It returns the commits and the tombstone's position.
func buried(t *testing.T, c, op *Conn) (k session.Key, raws []string, at session.Position) {
	t.Helper()
	ctx := t.Context()
	k = session.Key{Tenant: "acme", ID: c.Minter().ID("old")}
	l := c.Log()
	for seq := uint64(1); seq <= 5; seq++ {
		e := session.ChunkEvent(session.UserText(fmt.Sprint("words ", seq)))
		switch seq {
		case 1:
			e = session.OpenedEvent(session.Opening{Kind: session.OpenLeaf})
		case 5:
			e = session.ArchivedEvent(session.Archival{File: "old.json"})
		}
		var err error
		if at, err = l.Append(ctx, at, session.Commit{Key: k, Root: k.ID, Seq: seq, Epoch: 1, Prev: at.Hash, Events: []session.Event{e}}); err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range l.Read(ctx, k, session.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		raws = append(raws, e.Raw)
	}
	if err := c.Purge(ctx, k, at); !errors.Is(err, conn.ErrDenied) {
		t.Fatalf("the node purged: %v", err)
	}
	if err := op.Purge(ctx, k, at); err != nil {
		t.Fatal(err)
	}
	if err := op.Purge(ctx, k, at); err != nil {
		t.Fatalf("again: %v", err)
	}
	return k, raws, at
}

type netConn = net.Conn
