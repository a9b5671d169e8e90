package api

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
)

// TestNodesThatDied lists a node that renews its entry beside some that have stopped. Those
// with gossip are dead as soon as the gossip reports it, all are silent when a renewal is
// missing, and after half a minute they are removed.
func TestNodesThatDied(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, _ *natstest.Wire) {
		for _, n := range []messages.Node{
			{Incarnation: "n1", Name: "gossips", Gossip: "10.0.0.1:7946", Silent: 5, Dead: true}, // nothing that an entry could say
			{Incarnation: "n2", Name: "lives", Gossip: "10.0.0.2:7946"},
			{Incarnation: "n3", Name: "plain"},
		} {
			must.Get(c.putNode(t.Context(), n))(t)
		}
		var work sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		work.Go(func() {
			must.Report(t, c.Announce(ctx, "own", func() messages.Node { return messages.Node{Name: "own", Gossip: "10.0.0.4:7946"} }, func() {}))
		})
		began := time.Now()
		s := must.Get(c.ServeQueries(t.Context(), &Queries{
			Values: journal.NewValues(c.Logs.Log()),
			Alive:  func(incarnation string) bool { return incarnation == "own" || incarnation == "n2" },
		}))(t)
		at := func(d time.Duration) map[string]messages.Node {
			t.Helper()
			time.Sleep(d - time.Since(began))
			data, err := c.Requests.Query(t.Context(), "default", messages.QueryNodes, wire.Query{})
			var all wire.Nodes
			if err == nil {
				err = json.Unmarshal(data, &all)
			}
			must.Do(t, err)
			nodes := map[string]messages.Node{}
			for _, n := range all.Nodes {
				nodes[n.Name] = n
			}
			if o, ok := nodes["own"]; !ok || o.Dead || o.Silent != 0 {
				t.Errorf("after %v the node that lives is listed as %+v", d, o)
			}
			return nodes
		}
		says := func(n messages.Node, dead bool, silent time.Duration) {
			t.Helper()
			if d := time.Duration(n.Silent) * time.Millisecond; n.Name == "" || n.Dead != dead || d.Truncate(time.Second) != silent {
				t.Errorf("%+v, want dead %v, silent for %v", n, dead, silent)
			}
		}
		nodes := at(time.Second)
		says(nodes["gossips"], true, 0)
		says(nodes["lives"], false, 0)
		says(nodes["plain"], false, 0)
		says(at(14 * time.Second)["plain"], false, 0)
		nodes = at(21 * time.Second)
		says(nodes["gossips"], true, 21*time.Second)
		says(nodes["lives"], false, 21*time.Second)
		says(nodes["plain"], false, 21*time.Second)
		if nodes = at(35 * time.Second); len(nodes) != 1 {
			t.Errorf("after their time there are %v", nodes)
		}
		cancel()
		work.Wait()
		must.Report(t, s.Stop())
	})
}

// TestRenewalMissed loses a node's renewal of its entry: the node retries soon, and not at
// the next interval, three of which may be lost on a slow machine.
func TestRenewalMissed(t *testing.T) {
	layer.InBubble(t, func(t *testing.T, c *Conn, w *natstest.Wire) {
		entered := 0
		stop := natstest.Background(t, func(ctx context.Context) error {
			return c.Announce(ctx, "own", func() messages.Node { return messages.Node{Name: "own"} }, func() { entered++ })
		})
		defer stop()
		time.Sleep(time.Second)
		hook, lost := natstest.Once("KV.NODE.own", natstest.Replace("KV.NODE", "KV.NONE"))
		w.Set(nil, hook)
		time.Sleep(silentAfter)
		if all, err := c.Nodes(t.Context()); err != nil || len(all) != 1 || all[0].Silent != 0 {
			t.Errorf("after one renewal that was lost: %+v, %v", all, err)
		}
		if !lost() || entered != 1 {
			t.Errorf("a renewal was lost: %v; the node heard %d times that it is entered, want 1", lost(), entered)
		}
	})
}
