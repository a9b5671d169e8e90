package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// nap sleeps for the duration in its input.
var nap = flow.Registration{Name: "nap", Revision: "1", NewFor: func(s flow.Info) (flow.Workflow, error) {
	var text string
	if err := json.Unmarshal(s.Input, &text); err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(text)
	return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
		if err := flow.Sleep(ctx, d); err != nil {
			return v, err
		}
		return v.With(session.UserText("slept " + text)), nil
	}), err
}}

// question asks a person, with a timeout of a minute.
var question = flow.Registration{Name: "question", Revision: "1", New: func() flow.Workflow {
	return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
		a, err := flow.Approve(ctx, "May I?", &flow.AwaitOptions{Timeout: time.Minute})
		if err != nil {
			return v, err
		}
		return v.With(session.UserText(fmt.Sprint("approved: ", a.Approved))), nil
	})
}}

// TestDueTimes lets times come while no node, another node or the same node is up.
func TestDueTimes(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		sp := &spec{more: []flow.Registration{nap, question}}
		first := startNodeWith(t, srv, "node-1", sp)
		start := time.Now()
		at := func(d time.Duration) string { return start.Add(d).Format(time.RFC3339) }
		submit(t, nc, "nap", `{"id":"soon","input":"10s"}`)
		submit(t, nc, "nap", `{"id":"away","input":"60s"}`)
		submit(t, nc, "nap", `{"id":"late","input":"150s"}`)
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"planned","input":"x","not_before":%q}`, at(20*time.Second)))
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"planned2","input":"x","not_before":%q}`, at(130*time.Second)))
		submit(t, nc, "question", `{"id":"asked"}`)
		submit(t, nc, "nap", fmt.Sprintf(`{"id":"tired","input":"1h","deadline":%q}`, at(30*time.Second)))
		submit(t, nc, "hold", `{"id":"holds","session":"talk"}`)
		time.Sleep(time.Second)
		submit(t, nc, "agent", fmt.Sprintf(`{"id":"behind","session":"talk","input":"x","deadline":%q}`, at(25*time.Second)))

		ended := func(id string, want time.Duration, state string) {
			t.Helper()
			time.Sleep(time.Until(start.Add(want)))
			r := resultOf(t, nc, id)
			if d := time.UnixMilli(int64(r["ended_ms"].(float64))).Sub(start); r["state"] != state || d < want || d > want+500*time.Millisecond {
				t.Errorf("%s is %v after %v, want %s after %v", id, r["state"], d, state, want)
			}
		}
		ended("soon", 10*time.Second, "succeeded")
		ended("planned", 20*time.Second, "succeeded")
		ended("behind", 25*time.Second, "timed_out")
		ended("tired", 30*time.Second, "timed_out")

		first.kill()
		time.Sleep(time.Until(start.Add(90 * time.Second))) // no node is there
		began := time.Since(start)
		second := startNodeWith(t, srv, "node-2", sp)
		ended("away", began, "succeeded")
		ended("asked", began, "failed")
		ended("planned2", 130*time.Second, "succeeded")
		ended("late", 150*time.Second, "succeeded")
		close(second.hold)
		succeeded(t, nc, "holds")
		time.Sleep(time.Second)
		for _, stream := range []string{streams.StreamTasks} {
			for _, m := range second.stored(t, stream) {
				t.Errorf("left in %s: %s %s", stream, m.Subject, m.Data)
			}
		}
		second.checkLineage(t)
		second.stop()
	})
}

// closedBranches demands that every branch of a fan-out is closed.
func closedBranches(t *testing.T, nc *nats.Conn) {
	t.Helper()
	roots, ok := ask(t, nc, "rath.query.default.graph", `{"limit":500}`)["roots"].([]any)
	if !ok {
		t.Fatal("no roots")
	}
	branches := 0
	for _, root := range roots {
		tree, _ := ask(t, nc, "rath.query.default.graph", fmt.Sprintf(`{"session":%q}`, root))["tree"].([]any)
		for _, row := range tree {
			v := row.(map[string]any)
			if v["session"] == root {
				continue
			}
			branches++
			s := ask(t, nc, "rath.query.default.session", fmt.Sprintf(`{"session":%q}`, v["session"]))
			if s["closed"] == nil {
				t.Errorf("branch %v is open: %v", v["session"], v)
			}
		}
	}
	if branches == 0 {
		t.Error("no branches: the test shows nothing")
	}
}

// TestFrozenAnswerer freezes a node that took part in answering: requests that reach it are
// sent to another node.
func TestFrozenAnswerer(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		// The server chooses which subscription gets a request: with so many nodes no
		// request reaches the frozen one every time.
		var nodes []*node
		for i := range 4 {
			nodes = append(nodes, startNodeWith(t, srv, fmt.Sprint("node-", i), &spec{more: []flow.Registration{question}}))
		}
		conn := nodes[0].conn
		frozen, _ := operatorOf(t, srv)
		asked := make(chan *nats.Msg, 64) // and never answered
		for _, subject := range []string{"rath.ctl.>", "rath.query.*.result"} {
			must.Get(frozen.ChanQueueSubscribe(subject, "rath", asked))(t)
		}
		must.Do(t, frozen.Flush())
		for i := 0; i < 8 || len(asked) == 0 && i < 64; i++ {
			id := run.ID(fmt.Sprintf("r%d", i))
			submit(t, nc, "question", fmt.Sprintf(`{"id":%q}`, id))
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			if _, err := conn.Requests.Control(t.Context(), session.DefaultTenant, id, messages.VerbApprove, messages.Control{Step: "0", By: "ann"}); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			if d := time.Since(began); d > 28*time.Second {
				t.Errorf("%s was approved after %v", id, d)
			}
			if r := tenantResult(t, conn, session.DefaultTenant, id); r.State != run.Succeeded {
				t.Errorf("result %+v", r)
			}
		}
		if len(asked) == 0 {
			t.Error("the frozen node was never asked: the test shows nothing")
		}
		for _, n := range nodes {
			n.stop()
		}
	})
}
