package api_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// TestQueryBeforeRelays asks a process that has just started for its runs, while LINEAGE
// lacks its predecessor's last records: the answer waits until the partitions relayed here
// are known. That takes a moment, because another process is there, which relays nothing.
func TestQueryBeforeRelays(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello"}`)
		time.Sleep(time.Second)
		n.stop()
		forget(t, n)

		ctx, cancel := context.WithCancel(t.Context())
		own := must.Get(api.Connect(ctx, options(srv, t)))(t)
		defer own.Conn.Close()
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		user, password := srv.Node()
		other := must.Get(nats.Connect("", nats.InProcessServer(inProcess(srv.Dial)), nats.UserInfo(user, password), nats.CustomInboxPrefix(conn.NodeInbox)))(t)
		defer other.Close()
		must.Get(other.Subscribe("rath.node.relay.>", func(m *nats.Msg) { _ = m.Respond(nil) }))(t)
		must.Do(t, other.Flush())
		relay := own.Dispatch.StartRelay(ctx, nil)
		work.Go(func() { _ = relay.Wait() })
		service := must.Get(own.ServeQueries(ctx, &api.Queries{Values: journal.NewValues(own.Logs.Log())}))(t)
		defer service.Stop()
		if len(own.Relays()) > 0 {
			t.Fatal("it relays already: the test shows nothing")
		}
		m := must.Get(nc.Request("rath.query.default.runs", nil, 20*time.Second))(t)
		if !strings.Contains(string(m.Data), `"r1"`) {
			t.Errorf("answer %s, want run r1", m.Data)
		}
	})
}

// forget removes all lineage.
func forget(t *testing.T, n *node) {
	t.Helper()
	s, err := n.operator().Stream(t.Context(), streams.StreamLineage)
	if err == nil {
		err = s.Purge(t.Context())
	}
	must.Do(t, err)
}

// TestRelayedEnds ends a relay that is stuck while another process asks it for its
// watermark. The other process does not wait for it, nor does the relay wait for that
// process.
func TestRelayedEnds(t *testing.T) {
	for how, end := range map[string]func(*relayer){"leaves": (*relayer).leave, "dies": (*relayer).crash} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := natstest.Start(t, nil)
				a := startRelay(t, srv, nil)
				within(t, time.Second, "one relay has all", spread(relayPartitions, a))
				opts := options(srv, t)
				opts.Partitions = relayPartitions
				other := must.Get(api.Connect(t.Context(), opts))(t)
				defer other.Conn.Close()
				_, js := operatorOf(t, srv)
				full(t, js, streams.StreamLineage)
				turns(t, other.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: other.Logs.Minter().ID("s1")}, 1, true)

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				asked := make(chan error, 1)
				go func() { asked <- other.Projections.WaitCaughtUp(ctx) }()
				time.Sleep(time.Second)
				if len(asked) > 0 {
					t.Fatalf("it did not wait: %v", <-asked)
				}
				began := time.Now()
				end(a)
				if d := time.Since(began); d > 500*time.Millisecond {
					t.Errorf("the relay ended after %v", d)
				}
				if err, d := <-asked, time.Since(began); err != nil || d > 2*time.Second {
					t.Errorf("who asked waited %v longer, and was told %v", d, err)
				}
			})
		})
	}
}

// full has a stream take no more.
func full(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	s := must.Get(js.Stream(t.Context(), name))(t)
	cfg := s.CachedInfo().Config
	cfg.Discard, cfg.MaxBytes = jetstream.DiscardNew, 1
	must.Get(js.UpdateStream(t.Context(), cfg))(t)
}

// TestRelayGivesUp ends a relay before it has begun, in a process with queries for a
// commit: no caller waits for relays that never come.
func TestRelayGivesUp(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		submit(t, nc, "agent", `{"id":"r1","input":"hello"}`)
		time.Sleep(time.Second)
		n.stop()
		conn := must.Get(api.Connect(t.Context(), options(srv, t)))(t)
		defer conn.Conn.Close()
		ended, end := context.WithCancel(t.Context())
		end()
		gone := conn.Dispatch.StartRelay(ended, nil)
		began := time.Now()
		bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := conn.Projections.WaitCaughtUp(bounded); err != nil || time.Since(began) > time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		must.Report(t, gone.Wait())
		if got := n.stored(t, streams.StreamLineage); len(got) == 0 {
			t.Error("no lineage is stored: the test shows little")
		}
	})
}
