//go:build e2e

package streams

import (
	"context"
	"errors"
	"testing"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/natstest"
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
	less, err := c.Plan(ctx, &Provisioning{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
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
