package api_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/session"
)

// flagFanOuts is how many fan-outs TestFanOutsAtRest opens.
var flagFanOuts = flag.Int("fanouts", 50, "fan-outs that are at rest")

// TestFanOutsAtRest has the eight branches of many fan-outs wait for a person. In a
// minute a node sends and gets as much as if there were none.
func TestFanOutsAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const branches = 8
		srv := natstest.Start(t, nil)
		open := flow.Registration{Name: "open", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, v, flow.Repeat(branches, flow.Func(func(ctx context.Context, b session.Session) (session.Session, error) {
					_, err := flow.Approve(ctx, "May I?", nil)
					return b, err
				})), nil)
				if err != nil {
					return v, err
				}
				return flow.Merge(ctx, j, flow.Pick(0))
			})
		}}
		n := startNodeWith(t, srv, "node-1", &spec{slots: 256, more: []flow.Registration{open}, members: newMembers()})
		minute := func() (sent, got uint64) {
			time.Sleep(10 * time.Minute) // new sessions have settled, and none is in memory
			before, beforeGot := n.conn.Traffic()
			time.Sleep(time.Minute)
			synctest.Wait()
			after, afterGot := n.conn.Traffic()
			return after - before, afterGot - beforeGot
		}
		sent, got := minute()
		nc := guest(t, srv)
		for i := range *flagFanOuts {
			submit(t, nc, "open", fmt.Sprintf(`{"id":"r%d"}`, i))
			if i%20 == 19 {
				time.Sleep(time.Second)
			}
		}
		nowSent, nowGot := minute()
		waiting := 0
		for _, c := range n.commits(t) {
			for _, ev := range c.Events {
				if ev.Kind == "run.waiting" {
					waiting++
				}
			}
		}
		if waiting < *flagFanOuts*(branches+1) {
			t.Errorf("%d runs wait, want %d: the test shows little", waiting, *flagFanOuts*(branches+1))
		}
		t.Logf("%d fan-outs of %d branches: %d messages sent and %d got in a minute, %d and %d with none", *flagFanOuts, branches, nowSent, nowGot, sent, got)
		if nowSent > sent+10 || nowGot > got+10 { // some more or less at the ends of the minute
			t.Errorf("%d messages sent and %d got in a minute, %d and %d if nothing is open", nowSent, nowGot, sent, got)
		}
		n.stop()
	})
}

// TestIdleNode bounds the traffic of an idle node with two partitions, in all and for
// waiting runs.
func TestIdleNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNodeWith(t, srv, "node-1", &spec{members: newMembers()})
		time.Sleep(5 * time.Minute)
		nc, _ := operatorOf(t, srv)
		var mu sync.Mutex
		counts := map[string]int{}
		kind := func(subject string) string {
			switch {
			case strings.HasPrefix(subject, "rath.node.relay."):
				return "signs of relays"
			case strings.HasPrefix(subject, "rath.node."):
				return "slots and demands"
			case strings.HasPrefix(subject, "$JS.API.STREAM.INFO."):
				return "looks at how full streams are"
			case strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT.TASKS."):
				return "requests for tasks"
			}
			return "others"
		}
		for _, subject := range []string{"rath.>", "$JS.API.>", "$KV.>"} {
			must.Get(nc.Subscribe(subject, func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				counts[kind(m.Subject)]++
			}))(t)
		}
		must.Do(t, nc.Flush())
		sentBefore, gotBefore := n.conn.Traffic()
		time.Sleep(time.Minute)
		synctest.Wait()
		sent, got := n.conn.Traffic()
		sent, got = sent-sentBefore, got-gotBefore
		nc.Close()
		n.stop()
		mu.Lock()
		defer mu.Unlock()
		for _, k := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%s: %d sent in a minute", k, counts[k])
		}
		t.Logf("in all: %d sent, %d got in a minute", sent, got)
		if perSecond := float64(sent+got) / 60; perSecond > 18 {
			t.Errorf("an idle node sends and gets %.1f messages a second", perSecond)
		}
		if counts["slots and demands"] > 15 {
			t.Errorf("an idle node says %d times in a minute how its slots are", counts["slots and demands"])
		}
	})
}
