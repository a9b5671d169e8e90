//go:build e2e

package natsbus_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestClusterLostStream takes the servers away that keep the derived work, of a
// cluster whose other streams go on. The relay makes the stream anew on those
// that are left, and work goes through it.
func TestClusterLostStream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cluster := natstest.StartCluster(t, 5)
	c := clustered(ctx, t, cluster.URLs(0))
	provision := func() error {
		p, err := c.Plan(ctx, &natsbus.Provisioning{Pools: []string{natsbus.DefaultPool}, Tags: []string{natstest.First}})
		if err != nil {
			return err
		}
		return c.Apply(ctx, p)
	}
	err := provision()
	for err != nil && ctx.Err() == nil { // servers learn each other's tags
		err = provision()
	}
	if err != nil {
		t.Fatal(err)
	}
	loseWork(ctx, t, cluster)
	var relay sync.WaitGroup
	defer relay.Wait()
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	relay.Go(func() {
		if err := c.StartRelay(relaying, nil).Wait(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	task := run.Task{ID: "r1", Workflow: "w", Session: session.Key{Tenant: "default", ID: c.Minter().Mint("s1")}, Resume: true}
	offer := func() error {
		return c.PublishWork(ctx, natsbus.DefaultPool, messages.ClassInteractive, run.Work{Task: &task})
	}
	for err = offer(); err != nil; err = offer() {
		if ctx.Err() != nil {
			t.Fatalf("no work can be offered: %v", err)
		}
	}
	t.Logf("work can be offered again after %v", time.Since(began))
	pulling, done := context.WithCancel(ctx)
	defer done()
	got := false
	err = c.PullWork(pulling, natsbus.DefaultPool, func() int { return 1 }, func(_ context.Context, w run.Work) error {
		got = w.Task != nil && w.Task.ID == "r1"
		done()
		return nil
	})
	if err != nil || !got {
		t.Errorf("the work: %v, %v", got, err)
	}
}

// loseWork makes the stream of derived work again, on the last servers, stops
// two of them and waits until the third gives up.
func loseWork(ctx context.Context, t *testing.T, cluster *natstest.Cluster) {
	t.Helper()
	nc, err := nats.Connect(cluster.URLs(0))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, natsbus.StreamWork)
	if err == nil {
		err = js.DeleteStream(ctx, natsbus.StreamWork)
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Placement = &jetstream.Placement{Tags: []string{natstest.Last}}
	for {
		trying, cancel := context.WithTimeout(ctx, 10*time.Second)
		s, err = js.CreateStream(trying, cfg)
		cancel()
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(100 * time.Millisecond): // servers learn each other's tags
			t.Logf("the stream is not made yet: %v", err)
		}
	}
	cluster.Stop(3)
	cluster.Stop(4)
	for s.CachedInfo().Cluster.Leader != "" {
		select {
		case <-ctx.Done():
			t.Fatal("the stream goes on without two of its three servers")
		case <-time.After(100 * time.Millisecond):
		}
		asking, cancel := context.WithTimeout(ctx, time.Second)
		now, err := js.Stream(asking, natsbus.StreamWork)
		cancel()
		if err == nil {
			s = now
		}
	}
}
