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
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestClusterLosesLineage has LINEAGE on one of three servers alone, which loses its disk,
// while the logs have three replicas: relays in two processes continue, and a repair
// derives all lineage again. A second repair finds none missing.
func TestClusterLosesLineage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cluster := natstest.StartCluster(t, 3)
	c := clustered(ctx, t, cluster.URLs(0))
	must.Do(t, c.Streams.Provision(ctx))
	nc := must.Get(nats.Connect(cluster.URLs(0), nats.MaxReconnects(-1)))(t)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	s := must.Get(js.Stream(ctx, streams.StreamLineage))(t)
	cfg := s.CachedInfo().Config
	must.Do(t, js.DeleteStream(ctx, streams.StreamLineage))
	cfg.Replicas, cfg.AllowAtomicPublish, cfg.AllowBatchPublish = 1, false, true
	must.Get(js.CreateStream(ctx, cfg))(t)

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
	must.Do(t, c.Projections.WaitCaughtUp(ctx))
	victim := cluster.Leader(t, streams.StreamLineage)
	cluster.Stop(victim)
	write(30, 40)
	cluster.Empty(t, victim)
	cluster.Start(t, victim)
	write(40, 50)

	repaired := func() (all messages.Repaired) {
		t.Helper()
		for p := range c.Streams.Partitions() {
			did := must.Get(c.Projections.RepairLineage(ctx, p))(t)
			all.Published, all.Removed = all.Published+did.Published, all.Removed+did.Removed
		}
		return all
	}
	t.Logf("a repair does %+v", repaired())
	must.Do(t, c.Projections.WaitCaughtUp(ctx))
	n := &node{t: t, conn: c, js: js}
	n.checkLineage(t)
	if did := repaired(); did != (messages.Repaired{}) {
		t.Errorf("a second repair does %+v", did)
	}
	stop()
	relays.Wait()
	must.Report(t, c.Conn.Close())
}
