package natsbus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// counting counts how often the code of workflows runs.
type counting struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counting) up(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *counting) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// counted is a registration whose executions are counted.
func (c *counting) counted(g flow.Registration) flow.Registration {
	return flow.Registration{Name: g.Name, Revision: g.Revision, NewFor: func(s flow.Settings) (flow.Workflow, error) {
		made := g.NewFor
		if made == nil {
			made = func(flow.Settings) (flow.Workflow, error) { return g.New(), nil }
		}
		w, err := made(s)
		return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			c.up(g.Name)
			return w.Forward(ctx, v)
		}), err
	}}
}

// offered counts the runs, beside new branches, that the event streams ask to be
// offered.
func (n *node) offered(t *testing.T) map[run.ID]int {
	t.Helper()
	all := map[run.ID]int{}
	for _, c := range n.commits(t) {
		work, err := run.Derive(session.Entry{Commit: c})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range work {
			if w.Task != nil && w.Task.Resume {
				all[w.Task.ID]++
			}
		}
	}
	return all
}

// TestLingeringRuns has runs wait for a moment, for each of the things that they
// can wait for. They go on where they are: nothing offers them, no code runs
// again, and every run has the two claims of two attempts. The relay of half of
// the sessions is on the other node.
func TestLingeringRuns(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		const each, branches = 6, 8
		var dispatched atomic.Int64
		var ran counting
		sp := &spec{take: func(own taker) taker {
			return func(ctx context.Context, r run.Task) (natsbus.Answer, error) {
				if r.Resume && r.Seen.Attempt > 0 {
					dispatched.Add(1)
				}
				return own(ctx, r)
			}
		}, more: []flow.Registration{ran.counted(nap), ran.counted(question), ran.counted(fan(branches))}}
		a, b := startNodeWith(t, srv, "node-a", sp), startNodeWith(t, srv, "node-b", sp)
		time.Sleep(3 * time.Second) // until both take tasks
		for i := range each {
			submit(t, nc, "nap", fmt.Sprintf(`{"id":"nap%d","input":"1s"}`, i))
			submit(t, nc, "question", fmt.Sprintf(`{"id":"question%d"}`, i))
			submit(t, nc, "fan", fmt.Sprintf(`{"id":"fan%d"}`, i))
		}
		time.Sleep(time.Second)
		for i := range each {
			if r := ask(t, nc, fmt.Sprintf("rath.ctl.default.question%d.approve", i), `{"step":"0"}`); r["done"] != true {
				t.Fatalf("%v", r)
			}
		}
		time.Sleep(30 * time.Second)
		story, offered := a.claims(t), a.offered(t)
		nodes := map[string]int{}
		for _, name := range []string{"nap", "question", "fan"} {
			for i := range each {
				id := run.ID(fmt.Sprint(name, i))
				c := story[id]
				if c == nil || c.ends != 1 || len(c.by) != 2 || c.by[0] != c.by[1] || offered[id] != 0 {
					t.Errorf("%s: %+v, offered %d times; want it claimed twice by one node, ended once and never offered", id, c, offered[id])
					continue
				}
				nodes[c.by[0]]++
			}
		}
		if len(nodes) != 2 {
			t.Errorf("runs on %v, want some on both: the test shows little", nodes)
		}
		if n := dispatched.Load(); n != 0 || len(offered) != 0 {
			t.Errorf("%d dispatches of runs that waited, offers %v", n, offered)
		}
		// A branch runs the code around it once more.
		if ran.of("nap") != each || ran.of("question") != each || ran.of("fan") > each*(1+branches) {
			t.Errorf("code ran %v times", ran.n)
		}
		a.stop()
		b.stop()
	})
}

// TestLingeringNodeDies: the node is gone when the answer comes. Another one
// takes it, and what waited goes on there.
func TestLingeringNodeDies(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		sp := &spec{more: []flow.Registration{question}}
		a := startNodeWith(t, srv, "node-a", sp)
		submit(t, nc, "question", `{"id":"r1"}`)
		time.Sleep(actors.DefaultLinger / 2)
		a.kill()
		b := startNodeWith(t, srv, "node-b", sp)
		r := ask(t, nc, "rath.ctl.default.r1.approve", `{"step":"0"}`)
		if r["done"] != true {
			t.Fatalf("%v", r)
		}
		if r := resultOf(t, nc, "r1"); r["state"] != "succeeded" {
			t.Errorf("%v", r)
		}
		if c := b.claims(t)["r1"]; c == nil || !slices.Equal(c.by, []string{"node-a", "node-b"}) || b.offered(t)["r1"] != 1 {
			t.Errorf("%+v, offered %d times", c, b.offered(t)["r1"])
		}
		b.stop()
	})
}
