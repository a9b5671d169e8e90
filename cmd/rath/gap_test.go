//go:build e2e

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
)

// TestClusterGap has LINEAGE on one of three servers alone, which loses its disk, while the
// node lacks the permission to replace the records that were stored since: it cannot fill
// the gap, and doctor reports it until a repair with the permission.
func TestClusterGap(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	const victim = 1 // the node is connected to server 0
	cluster := natstest.StartCluster(t, 3)
	cluster.Login(t, map[string][]string{"node": nil, "ann": nil})
	url, _, _ := strings.Cut(cluster.URLs(0), ",")
	rath := func(line string) string {
		t.Helper()
		return command(t, "rath "+line+" --server "+strings.Replace(url, "//", "//ann:ann@", 1), dir)
	}

	n := must.Get(node.Start(ctx, &node.Options{
		NATS:  node.NATS{URL: url, User: "node", Password: "node", Level: "lazy", Replicas: 3},
		Store: t.TempDir(), Models: node.Models{Default: node.EchoModel},
	}))(t)
	defer func() { must.Report(t, n.Close()) }()
	nc := must.Get(nats.Connect(url, nats.UserInfo("ann", "ann"), nats.MaxReconnects(-1)))(t)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	cfg := must.Get(js.Stream(ctx, messages.StreamLineage))(t).CachedInfo().Config
	must.Do(t, js.DeleteStream(ctx, messages.StreamLineage))
	cfg.Replicas, cfg.AllowAtomicPublish, cfg.AllowBatchPublish = 1, false, true
	cfg.Placement = &jetstream.Placement{Tags: []string{natstest.ServerName(victim)}}
	must.Get(js.CreateStream(ctx, cfg))(t)

	cards := must.Get(must.Get(js.KeyValue(ctx, messages.BucketNode))(t).Watch(ctx, n.Incarnation()))(t)
	// card waits until the entry of the node has gaps, or none.
	card := func(gaps bool) {
		t.Helper()
		for {
			select {
			case e := <-cards.Updates():
				if e != nil && bytes.Contains(e.Value(), []byte(`"gaps":["EV_`)) == gaps {
					return
				}
			case <-ctx.Done():
				t.Fatalf("the node does not announce itself, with gaps %t", gaps)
			}
		}
	}

	c := must.Get(client.Connect(ctx, url, &client.Options{User: "ann", Password: "ann"}))(t)
	defer c.Close()
	in := func(id run.ID) { // the same session, thus the same partition
		t.Helper()
		must.Get(c.Do(ctx, "agent", messages.Task{ID: id, Session: "talk", Input: json.RawMessage(`"hello"`)}, nil))(t)
	}
	in("one")
	// A list waits until the relays have stored the lineage of all commits.
	if all := must.Get(c.Runs.List(ctx, nil))(t); len(all) != 1 {
		t.Fatalf("runs %+v", all)
	}
	if got := rath("doctor"); strings.Contains(got, "gap in the lineage") {
		t.Errorf("before the loss doctor reports\n%s", got)
	}

	const removal = "$JS.API.STREAM.MSG.DELETE." + messages.StreamLineage
	cluster.Login(t, map[string][]string{"node": {removal}, "ann": nil})
	cluster.Stop(victim)
	cluster.Empty(t, victim)
	cluster.Start(t, victim)
	cluster.Leader(t, messages.StreamLineage)
	in("two")
	card(true)
	if got := rath("doctor"); !strings.Contains(got, "gap in the lineage of EV_1_") || !strings.Contains(got, `"rath cluster repair" derives it again`) || !strings.HasSuffix(got, "[exit 6]\n") {
		t.Errorf("after the loss doctor reports\n%s", got)
	}
	if got := rath("cluster repair"); !strings.Contains(got, "no permission to publish to "+removal) || !strings.HasSuffix(got, "[exit 1]\n") {
		t.Errorf("without the permission a repair reports\n%s", got)
	}

	cluster.Login(t, map[string][]string{"node": nil, "ann": nil})
	if got := rath("cluster repair"); !strings.Contains(got, "are there again") {
		t.Errorf("a repair reports\n%s", got)
	}
	card(false)
	if got := rath("doctor"); strings.Contains(got, "gap in the lineage") {
		t.Errorf("after the repair doctor reports\n%s", got)
	}
	if all := must.Get(c.Runs.List(ctx, nil))(t); len(all) != 2 {
		t.Errorf("runs %+v", all)
	}
}
