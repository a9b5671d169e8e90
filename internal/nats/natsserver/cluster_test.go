package natsserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestCluster starts three servers with one set of users, stores on all of them, and
// retires one: acknowledged messages stay, and its clients are connected to another server.
func TestCluster(t *testing.T) {
	var (
		options []*natsserver.Options
		routes  []string
		urls    []string
	)
	for i := range 3 {
		o := &natsserver.Options{
			StoreDir: t.TempDir(), Name: fmt.Sprint("s", i), Port: natstest.FreePort(t), MonitorPort: natstest.FreePort(t),
			NodePassword: "n", OperatorPassword: "o", MaxStore: 1 << 30, MaxMemory: 1 << 30, PingInterval: 2 * time.Second,
			Cluster: &natsserver.Cluster{Name: "c", Port: natstest.FreePort(t), Handover: 100 * time.Millisecond},
		}
		options = append(options, o)
		routes = append(routes, fmt.Sprint("127.0.0.1:", o.Cluster.Port))
		urls = append(urls, fmt.Sprint("nats://127.0.0.1:", o.Port))
	}
	var servers []*natsserver.Server
	for _, o := range options {
		o.Cluster.Routes = routes
		servers = append(servers, start(t, *o))
	}
	for _, o := range options {
		waitHealthy(t, o.MonitorPort)
	}
	if always, _, err := servers[1].Sync(); err != nil || !always {
		t.Errorf("server 1 syncs always: %v, %v", always, err)
	}
	nc := must.Get(nats.Connect(strings.Join(urls, ","), nats.DontRandomize(), nats.UserInfo("node", "n"), nats.ReconnectWait(10*time.Millisecond)))(t)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "EV", Subjects: []string{"rath.ev.>"}, Replicas: 3})
		if err == nil {
			break
		}
		// The servers' leader may not have heard of all of them.
		const noPeers = 10005
		if api, ok := errors.AsType[*jetstream.APIError](err); !ok || api.ErrorCode != noPeers || ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	must.Get(js.Publish(ctx, "rath.ev.1", []byte("kept")))(t)
	must.Do(t, servers[0].Retire(ctx))
	for {
		// Sent to a server that was about to leave, it is never answered.
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := js.Publish(try, "rath.ev.2", []byte("after"))
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("publish after a server has retired: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if name := nc.ConnectedServerName(); name != "s1" && name != "s2" {
		t.Errorf("connected to %q, want one of the servers that are left", name)
	}
	s := must.Get(js.Stream(ctx, "EV"))(t)
	if m, err := s.GetLastMsgForSubject(ctx, "rath.ev.1"); err != nil || string(m.Data) != "kept" {
		t.Errorf("%v, %v", m, err)
	}
}

func waitHealthy(t *testing.T, port int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz?js-meta-only=true", port))
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server at %d is not healthy: %v", port, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestRetireAlone retires a server that belongs to no cluster.
func TestRetireAlone(t *testing.T) {
	srv := start(t, natsserver.Options{})
	must.Do(t, srv.Retire(t.Context()))
	select {
	case <-srv.Done():
	default:
		t.Error("it has not ended")
	}
}
