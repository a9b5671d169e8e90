package project

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/session"
)

// Conn is what the tests connect.
type Conn = Projections

func TestMain(m *testing.M) { natstest.Main(m) }

func connect(ctx context.Context, o *streams.Options) (*Conn, error) {
	st, err := streams.OpenStore(ctx, o)
	if err != nil {
		return nil, err
	}
	return NewProjections(eventlog.NewLogs(st)), nil
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

// behind makes all direct reads of a stream reach a replica that holds its first n
// messages only.
func behind(stream string, n int) func(b []byte) bool {
	return func(b []byte) bool {
		const mark, batch = `"next_by_subj":"rath.`, `"batch":512`
		if !bytes.Contains(b, []byte("DIRECT.GET."+stream)) || !bytes.Contains(b, []byte(mark)) {
			return true
		}
		var from uint64
		_, _ = fmt.Sscanf(string(b[bytes.Index(b, []byte(`{"seq":`)):]), `{"seq":%d`, &from)
		if from > uint64(n) {
			return natstest.Replace(mark, `"next_by_subj":"none.`)(b)
		}
		return natstest.Replace(batch, fmt.Sprintf(`"batch":%d`, uint64(n)+1-from))(b)
	}
}

// putLineage stores one record of a session for each commit from one to another.
func putLineage(t *testing.T, c *Conn, id session.ID, first, last uint64) {
	t.Helper()
	_, partition, _ := id.Locate()
	for n := first; n <= last; n++ {
		r := lineage.Record{
			Schema: lineage.Schema, Kind: lineage.Chunk, Tenant: session.DefaultTenant, Session: id, Root: id,
			Partition: partition, Seq: n, Commit: n,
		}
		if n == first {
			r.Kind = lineage.Opened
		}
		records := []lineage.Record{r}
		data, err := lineage.EncodeStored(records)
		if err == nil {
			_, err = c.JS.Publish(t.Context(), lineage.StoredSubject(records), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
