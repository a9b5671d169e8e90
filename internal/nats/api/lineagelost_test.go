//go:build e2e

package api_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/session"
)

// TestClusterLosesLineage has one of three servers alone hold LINEAGE and lose its disk, while the
// logs have three replicas: relays in two processes go on, and a repair derives all lineage again.
// A second one finds nothing.
func TestClusterLosesLineage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cluster := natstest.StartCluster(t, 3)
	c := clustered(ctx, t, cluster.URLs(0))
	if err := c.Streams.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(cluster.URLs(0), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(ctx, streams.StreamLineage)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if err := js.DeleteStream(ctx, streams.StreamLineage); err != nil {
		t.Fatal(err)
	}
	cfg.Replicas, cfg.AllowAtomicPublish, cfg.AllowBatchPublish = 1, false, true
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}

	var relays sync.WaitGroup
	defer relays.Wait()
	relaying, stop := context.WithCancel(ctx)
	defer stop()
	for i := range 2 {
		own := clustered(ctx, t, cluster.URLs(i))
		defer own.Conn.Close()
		relays.Go(func() {
			if err := own.Dispatch.StartRelay(relaying, &dispatch.RelayOptions{Incarnation: fmt.Sprintf("r%d", i)}).Wait(); err != nil {
				t.Errorf("relay %d: %v", i, err)
			}
		})
	}
	write := func(from, to int) {
		var writing sync.WaitGroup
		for i := from; i < to; i++ {
			writing.Go(func() {
				turns(t, c.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: c.Logs.Minter().ID(fmt.Sprintf("w%d", i))}, 2, true)
			})
		}
		writing.Wait()
	}
	write(0, 30)
	if err := c.Projections.WaitCaughtUp(ctx); err != nil {
		t.Fatal(err)
	}
	victim := cluster.Leader(t, streams.StreamLineage)
	cluster.Stop(victim)
	write(30, 40)
	cluster.Empty(t, victim)
	cluster.Start(t, victim)
	write(40, 50)

	repaired := func() (all wire.Repaired) {
		t.Helper()
		for p := range c.Streams.Partitions() {
			did, err := c.Projections.RepairLineage(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			all.Published, all.Removed = all.Published+did.Published, all.Removed+did.Removed
		}
		return all
	}
	t.Logf("a repair does %+v", repaired())
	if err := c.Projections.WaitCaughtUp(ctx); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, conn: c, js: js}
	n.checkLineage(t)
	if did := repaired(); did != (wire.Repaired{}) {
		t.Errorf("a second repair does %+v", did)
	}
	stop()
	relays.Wait()
	if err := c.Conn.Close(); err != nil {
		t.Error(err)
	}
}
