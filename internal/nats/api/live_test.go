package api_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/natstest"
)

// live queries the state of a run, as a client without credentials, and returns how long
// that takes.
func live(t *testing.T, nc *nats.Conn, id string) (object, time.Duration) {
	t.Helper()
	began := time.Now()
	return ask(t, nc, "rath.query.default.live", fmt.Sprintf(`{"run":%q}`, id)), time.Since(began)
}

// TestLiveOnThreeNodes asks a node about runs that it does not execute: runs of two other
// nodes, runs that wait for their slots, and a run whose node has died.
func TestLiveOnThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		told := []*members{newMembers(), newMembers(), newMembers()}
		nodes := []*node{
			startNodeWith(t, srv, "node-0", &spec{slots: 1, members: told[0]}),
			startNodeWith(t, srv, "node-1", &spec{slots: 1, members: told[1]}),
			startNodeWith(t, srv, "other", &spec{slots: 1, pool: "other", only: []flow.Registration{}, members: told[2]}),
		}
		time.Sleep(5 * time.Second)
		nc := guest(t, srv)
		for i := range 5 {
			submit(t, nc, "once", fmt.Sprintf(`{"id":"r%d"}`, i))
			time.Sleep(time.Second)
		}
		byNode := map[string]string{}
		waiting := 0
		for i := range 5 {
			id := fmt.Sprint("r", i)
			l, _ := live(t, nc, id)
			if i > 1 {
				q, _ := l["queue"].(map[string]any)
				if l["state"] != "queued" || q["pool"] != "default" || q["nodes"] != 2.0 || q["free"] != 0.0 || q["class"] != "interactive" {
					t.Errorf("%s: %v", id, l)
				}
				waiting++
				continue
			}
			steps, _ := l["steps"].([]any)
			if l["state"] != "running" || len(steps) != 1 {
				t.Fatalf("%s: %v", id, l)
			}
			step := steps[0].(map[string]any)
			if step["kind"] != "do" || step["name"] != "pay" || step["doing"] != "works" || l["at_ms"].(float64)-step["began_ms"].(float64) < 3000 {
				t.Errorf("%s: step %v", id, step)
			}
			byNode[l["node"].(string)] = id
		}
		if len(byNode) != 2 || waiting != 3 {
			t.Fatalf("runs by node %v, %d wait", byNode, waiting)
		}
		if l, _ := live(t, nc, "none"); l["code"] != "unknown_run" {
			t.Errorf("a run that there is not: %v", l)
		}
		var dying sync.WaitGroup
		dying.Go(nodes[1].kill)
		time.Sleep(100 * time.Millisecond)
		l, took := live(t, nc, byNode["node-1"])
		// It may have had the partition of the run too, which another one takes over.
		for ; l["code"] == "unavailable" && took <= 3*time.Second; l, took = live(t, nc, byNode["node-1"]) {
			time.Sleep(time.Second)
		}
		if l["state"] != "running" || l["silent"] != true || l["node"] != "node-1" || took > 3*time.Second {
			t.Errorf("the run of a node that has died, after %v: %v", took, l)
		}
		for _, i := range []int{0, 2} {
			told[i].die("node-1")
		}
		time.Sleep(10 * time.Second)
		l, _ = live(t, nc, byNode["node-1"])
		if q, _ := l["queue"].(map[string]any); q == nil || q["nodes"] != 1.0 || l["silent"] != true {
			t.Errorf("the run of a node that is known to be dead: %v", l)
		}
		dying.Wait()
		for _, i := range []int{0, 2} {
			close(nodes[i].hold)
		}
		succeeded(t, nc, byNode["node-0"])
		if l, _ := live(t, nc, byNode["node-0"]); l["state"] != "succeeded" || l["steps"] != nil {
			t.Errorf("a run that has ended: %v", l)
		}
		nodes[0].stop()
		nodes[2].stop()
	})
}
