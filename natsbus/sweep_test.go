package natsbus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestCutOffCall kills a node in the middle of a call that must not happen
// twice: the run waits for a person, also on the next node, and goes on with
// what he decides.
func TestCutOffCall(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		for _, id := range []string{"r1", "r2"} {
			submit(t, nc, "once", fmt.Sprintf(`{"id":%q}`, id))
		}
		time.Sleep(time.Second)
		n.kill()
		n = startNode(t, srv, "node-2")
		for _, id := range []string{"r1", "r2"} {
			for r := (object{}); r["state"] != "needs_review"; time.Sleep(10 * time.Millisecond) {
				if r = ask(t, nc, "rath.query.default.run", fmt.Sprintf(`{"run":%q}`, id)); r["state"] == "succeeded" || r["state"] == "failed" {
					t.Fatal(r)
				}
			}
		}
		r := ask(t, nc, "rath.query.default.run", `{"run":"r1"}`)
		if v, ok := r["review"].(map[string]any); !ok || v["step"] != "0" || v["reason"] == "" {
			t.Errorf("run %v, want what is to be decided", r)
		}
		if a := ask(t, nc, "rath.ctl.default.r1.resolve", `{"decision":"happened"}`); a["code"] != "malformed" {
			t.Errorf("without a reason: %v", a)
		}
		if a := ask(t, nc, "rath.ctl.default.r1.resolve", `{"decision":"happened","value":"paid by hand","reason":"the bank says so"}`); a["done"] != true {
			t.Errorf("answer %v", a)
		}
		if a := ask(t, nc, "rath.ctl.default.r2.resolve", `{"decision":"fail","reason":"leave it"}`); a["done"] != true {
			t.Errorf("answer %v", a)
		}
		if r := resultOf(t, nc, "r2"); r["state"] != "failed" {
			t.Errorf("result %v", r)
		}
		r = resultOf(t, nc, "r1")
		s := ask(t, nc, "rath.query.default.session", fmt.Sprintf(`{"session":%q}`, r["session"]))
		if c := s["chunks"].([]any)[0].(map[string]any); r["state"] != "succeeded" || c["text"] != "paid by hand" {
			t.Errorf("result %v, session %v", r, s)
		}
		n.stop()
	})
}

// TestSweepTakesOver kills a node with runs on it: the next one goes on with
// them as soon as it is there.
func TestSweepTakesOver(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		first := startNode(t, srv, "node-1")
		const runs = 5
		for i := range runs {
			submit(t, nc, "hold", fmt.Sprintf(`{"id":"r%d"}`, i))
		}
		submit(t, nc, "agent", `{"id":"behind","session":"talk","input":"x"}`)
		submit(t, nc, "hold", `{"id":"busy","session":"talk"}`)
		submit(t, nc, "agent", `{"id":"queued","session":"talk","input":"y"}`)
		time.Sleep(time.Second)
		first.kill()

		began := time.Now()
		second := startNode(t, srv, "node-2")
		close(second.hold)
		succeeded(t, nc, "r0", "r1", "r2", "r3", "r4", "busy", "queued")
		if d := time.Since(began); d > time.Second {
			t.Errorf("the runs of the dead node went on after %v", d)
		}
		time.Sleep(time.Second)
		second.checkLineage(t)
		for _, m := range second.stored(t, natsbus.StreamWork) {
			t.Errorf("work is left: %s %s", m.Subject, m.Data)
		}
		second.stop()
	})
}

// TestNobodyOffers kills the only node that offers a workflow: a run of it, and a
// branch, end at their deadlines all the same, with a reason.
func TestNobodyOffers(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		hold := flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
			<-ctx.Done()
			return v, context.Cause(ctx)
		})
		first := startNodeWith(t, srv, "node-1", &spec{only: []flow.Registration{
			{Name: "rare", Description: "waits", Revision: "1", New: func() flow.Workflow { return hold }},
			{Name: "wide", Description: "waits in a branch", Revision: "1", New: func() flow.Workflow {
				return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
					_, err := flow.FanOut(ctx, v, []flow.Branch{{Name: "x", Workflow: hold}}, &flow.FanOutOptions{Deadline: 30 * time.Second})
					return v, err
				})
			}},
		}})
		began := time.Now()
		submit(t, nc, "rare", `{"id":"r1","budget":{"time_ms":30000}}`)
		submit(t, nc, "rare", fmt.Sprintf(`{"id":"r2","deadline":%q}`, began.Add(30*time.Second).UTC().Format(time.RFC3339Nano)))
		submit(t, nc, "wide", `{"id":"r3"}`)
		branch := string(first.conn.Minter().Child(session.DefaultTenant, "r3", "0.x"))
		time.Sleep(10 * time.Second)
		if r := ask(t, nc, "rath.query.default.run", fmt.Sprintf(`{"run":%q}`, branch)); r["state"] != "running" {
			t.Fatalf("the branch is %v", r)
		}
		first.kill()
		second := startNode(t, srv, "node-2")
		for _, id := range []string{"r1", "r2", branch} {
			r := resultOf(t, nc, id)
			if text := fmt.Sprint(r["error"]); r["state"] != "timed_out" || r["code"] != "deadline_exceeded" ||
				!strings.Contains(text, "nobody executed the run at its deadline") {
				t.Errorf("%s: %v", id, r)
			}
		}
		if d := time.Since(began); d < 30*time.Second || d > 35*time.Second {
			t.Errorf("they ended after %v", d)
		}
		second.stop()
	})
}

// TestWorkOfAnEndedRun offers a run that has ended: nothing happens, and the
// message is gone.
func TestWorkOfAnEndedRun(t *testing.T) {
	story(t, func(t *testing.T, n *node, nc *nats.Conn) {
		h := listen(t, nc, "r1")
		submit(t, nc, "agent", `{"id":"r1","input":"x"}`)
		r := next(t, h.results, "result")
		k := session.Key{Tenant: session.DefaultTenant, ID: session.ID(r["session"].(string))}
		for _, w := range []run.Work{
			{Task: &run.Task{ID: "r1", Workflow: "agent", Session: k, Resume: true}},
			{Task: &run.Task{ID: "r7", Workflow: "agent", Session: k, Resume: true}},
			{Signal: &run.Signal{To: k, Run: "r1", Cancel: &run.CancelRequested{Run: "r1"}}},
		} {
			if err := n.conn.PublishWork(t.Context(), natsbus.DefaultPool, messages.ClassInteractive, w); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if left := n.stored(t, natsbus.StreamWork); len(left) != 0 {
			t.Errorf("%d messages are left", len(left))
		}
		synctest.Wait()
		if len(h.results) != 0 {
			t.Errorf("another result: %v", <-h.results)
		}
	})
}
