//go:build e2e

package streams

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// TestClusterPlan provisions three servers and lowers the number of replicas;
// nodes find everything.
func TestClusterPlan(t *testing.T) {
	ctx := t.Context()
	cluster := natstest.StartCluster(t, 3)
	c := dial(t, &Options{Options: conn.Options{URL: cluster.URLs(0)}, Client: true})
	p := planned(t, c, &Provisioning{Partitions: 2})
	if p.Replicas != newReplicas || len(actions(p)[Create]) != len(p.Changes) {
		t.Errorf("a new installation: %+v", p)
	}
	if p := planned(t, c, nil); len(p.Pending()) != 0 || p.Replicas != 3 {
		t.Errorf("a second time: %+v", p.Pending())
	}
	o := &Options{
		Options: conn.Options{URL: cluster.URLs(1)}, Replicas: 3,
		Probe: func(context.Context) ([]SyncState, error) { return []SyncState{{Server: "all", Always: true}}, nil },
	}
	node := dial(t, o)
	if err := node.Verify(ctx); err != nil || node.Partitions() != 2 {
		t.Errorf("a node finds %d partitions and %v", node.Partitions(), err)
	}
	less := must.Get(c.Plan(ctx, &Provisioning{Replicas: 1}))(t)
	if err := c.Apply(ctx, less); !errors.Is(err, ErrRefused) {
		t.Errorf("fewer replicas without consent: %v", err)
	}
	if err := node.Verify(ctx); err != nil {
		t.Errorf("what was refused changed something: %v", err)
	}
	if p := planned(t, c, &Provisioning{Replicas: 1, FewerReplicas: true}); p.Replicas != 1 {
		t.Errorf("fewer replicas with consent: %+v", p)
	}
	o.Replicas = 1
	if err := dial(t, o).Verify(ctx); err != nil {
		t.Errorf("a node of one replica: %v", err)
	}
}

// TestClusterAway stops one of three servers: the plan shows fewer replicas of each stream
// than wanted, until the server is back.
func TestClusterAway(t *testing.T) {
	cluster := natstest.StartCluster(t, 3)
	c := dial(t, &Options{Options: conn.Options{URL: cluster.URLs(0)}, Client: true})
	for _, ch := range planned(t, c, &Provisioning{Partitions: 1}).Changes {
		if ch.Away != 0 {
			t.Errorf("%s is new and lacks %d replicas", ch.Name, ch.Away)
		}
	}
	// Servers notice each other's absence by themselves, in ten seconds or so.
	until := func(want int) {
		t.Helper()
		var have []int
		for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			p, err := c.Plan(t.Context(), nil)
			if err != nil {
				continue // a stream has no leader for a moment
			}
			have = nil
			for _, ch := range p.Changes {
				if ch.Kind != KindConsumer {
					have = append(have, ch.Away)
				}
			}
			if !slices.ContainsFunc(have, func(n int) bool { return n != want }) {
				return
			}
		}
		t.Fatalf("replicas that are away: %v, want %d of each stream", have, want)
	}
	cluster.Stop(2)
	until(1)
	cluster.Start(t, 2)
	until(0)
}
