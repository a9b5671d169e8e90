package streams_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestWillPass makes the errors that a starting node meets and separates those that pass by
// themselves from those that an operator has to fix.
func TestWillPass(t *testing.T) {
	srv := natstest.Start(t, &natsserver.Options{Port: -1, Lazy: true})
	plain := must.Get(server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true}))(t)
	plain.Start()
	t.Cleanup(func() {
		plain.Shutdown()
		plain.WaitForShutdown()
	})
	if !plain.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server without JetStream is not ready")
	}
	user, password := srv.Node()
	node := func(change func(*streams.Options)) streams.Options {
		o := streams.Options{Options: conn.Options{URL: srv.URL(), User: user, Password: password, Inbox: conn.NodeInbox}, Probe: streamstest.Probe(srv)}
		change(&o)
		return o
	}
	broken := func(context.Context) ([]streams.SyncState, error) { return nil, errors.New("connection refused") }
	tests := map[string]struct {
		opts streams.Options
		want bool
	}{
		"nobody there":             {streams.Options{Options: conn.Options{URL: "nats://127.0.0.1:1"}, Level: streams.Lazy}, true},
		"no such name":             {streams.Options{Options: conn.Options{URL: "nats://nats.invalid:4222"}, Level: streams.Lazy}, true},
		"no JetStream yet":         {streams.Options{Options: conn.Options{URL: plain.ClientURL()}, Level: streams.Lazy}, true},
		"servers cannot be asked":  {node(func(o *streams.Options) { o.Probe = broken }), true},
		"three servers are needed": {node(func(o *streams.Options) { o.Level, o.Replicas = streams.Replicated, 3 }), false},
		"wrong password":           {node(func(o *streams.Options) { o.Password = "wrong" }), false},
		"servers store less":       {node(func(*streams.Options) {}), false},
		"no way to ask":            {node(func(o *streams.Options) { o.Probe = nil }), false},
		"two replicas":             {node(func(o *streams.Options) { o.Replicas = 2 }), false},
		"too small a disk":         {node(func(o *streams.Options) { o.Level, o.StoreBytes = streams.Lazy, 1<<60 }), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := streams.OpenStore(ctx, &tc.opts)
			if err == nil {
				err = c.Provision(ctx)
				defer c.Conn.Close()
			}
			if err == nil || streams.WillPass(err) != tc.want {
				t.Errorf("want %v: %v", tc.want, err)
			}
		})
	}
	if streams.WillPass(nil) || streams.WillPass(context.Canceled) {
		t.Error("no error, and the caller's own end, do not pass")
	}
	if !streams.WillPass(conn.ErrLeaderless) {
		t.Error("that a stream has no leader passes")
	}
}

// TestAnswering compares the answers of a node without streams, with them, and without a
// server.
func TestAnswering(t *testing.T) {
	srv := natstest.Start(t, nil)
	c := layer.Dial(t, streamstest.NodeOptions(srv))
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return c.Answering(ctx)
	}
	if err := ask(); err == nil || !strings.Contains(err.Error(), streams.StreamTasks) || !strings.Contains(err.Error(), "Provision") {
		t.Errorf("without streams: %v", err)
	}
	must.Do(t, c.Provision(t.Context()))
	if err := ask(); err != nil {
		t.Errorf("with streams: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must.Do(t, srv.Shutdown(ctx))
	for err := ask(); !errors.Is(err, conn.ErrUnreachable); err = ask() {
		if err == nil && ctx.Err() != nil {
			t.Fatal("still answering without a server")
		}
	}
}
