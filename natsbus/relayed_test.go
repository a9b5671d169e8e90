package natsbus_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
)

// TestQueryBeforeRelays asks a process for its runs that has just started, while
// LINEAGE lacks what its predecessor published last: the answer waits for the
// relays that are about to begin.
func TestQueryBeforeRelays(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello"}`)
		time.Sleep(time.Second)
		n.stop()
		s, err := n.operator().Stream(t.Context(), natsbus.StreamLineage)
		if err == nil {
			err = s.Purge(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		conn, err := natsbus.Connect(ctx, options(srv, t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.WillRelay()
		index := conn.NewIndex()
		service, err := conn.ServeQueries(ctx, &natsbus.Queries{Index: index, Values: run.NewValues(conn.Log())})
		if err != nil {
			t.Fatal(err)
		}
		defer service.Stop()
		work.Go(func() { _ = index.Run(ctx) })
		asked := make(chan string, 1)
		work.Go(func() {
			m, err := nc.Request("rath.query.default.runs", nil, 20*time.Second)
			if err != nil {
				asked <- err.Error()
				return
			}
			asked <- string(m.Data)
		})
		time.Sleep(time.Second)
		work.Go(func() { _ = conn.RelayAll(ctx, nil) })
		if got := <-asked; !strings.Contains(got, `"r1"`) {
			t.Errorf("answer %s, want run r1", got)
		}
	})
}
