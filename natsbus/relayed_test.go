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
// LINEAGE lacks what its predecessor published last: the answer waits until it is
// known what is relayed here. That takes a moment, because another process is
// there, which relays nothing.
func TestQueryBeforeRelays(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello"}`)
		time.Sleep(time.Second)
		n.stop()
		forget(t, n)

		ctx, cancel := context.WithCancel(t.Context())
		conn, err := natsbus.Connect(ctx, options(srv, t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		user, password := srv.Node()
		other, err := nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(natsbus.NodeInbox))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.Subscribe("rath.node.relay.>", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
			t.Fatal(err)
		}
		if err := other.Flush(); err != nil {
			t.Fatal(err)
		}
		relay := conn.StartRelay(ctx, nil)
		work.Go(func() { _ = relay.Wait() })
		index := conn.NewIndex()
		service, err := conn.ServeQueries(ctx, &natsbus.Queries{Index: index, Values: run.NewValues(conn.Log())})
		if err != nil {
			t.Fatal(err)
		}
		defer service.Stop()
		work.Go(func() { _ = index.Run(ctx) })
		if len(conn.Relays()) > 0 {
			t.Fatal("it relays already: the test shows nothing")
		}
		m, err := nc.Request("rath.query.default.runs", nil, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(m.Data), `"r1"`) {
			t.Errorf("answer %s, want run r1", m.Data)
		}
	})
}

// forget removes all lineage.
func forget(t *testing.T, n *node) {
	t.Helper()
	s, err := n.operator().Stream(t.Context(), natsbus.StreamLineage)
	if err == nil {
		err = s.Purge(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRelayGivesUp ends a relay before it has begun, in a process that is asked for
// what was committed: nobody waits for relays that never come.
func TestRelayGivesUp(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello"}`)
		time.Sleep(time.Second)
		n.stop()
		conn, err := natsbus.Connect(t.Context(), options(srv, t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ended, end := context.WithCancel(t.Context())
		end()
		gone := conn.StartRelay(ended, nil)
		began := time.Now()
		bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := conn.Relayed(bounded); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := gone.Wait(); err != nil {
			t.Error(err)
		}
		if got := n.stored(t, natsbus.StreamLineage); len(got) == 0 {
			t.Error("no lineage is stored: the test shows little")
		}
	})
}
