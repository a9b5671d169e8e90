package api_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestTenantAtItsLimit fills a tenant's quota of waiting tasks: the next one fails with the
// reason and the remedy. Another tenant is not affected, and there is room again once nodes
// claim tasks.
func TestTenantAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		startNode(t, srv, "node-1").stop() // it made the streams
		c, _ := visitor(t, srv)
		accepted := 0
		submit := func() error {
			_, err := c.Submit(t.Context(), "agent", messages.Task{ID: run.ID(fmt.Sprint("r", accepted)), Input: text("x")})
			return err
		}
		var err error
		for ; accepted < 5000; accepted++ {
			if err = submit(); err != nil {
				break
			}
		}
		if !errors.Is(err, run.ErrBusy) || !errors.Is(err, conn.ErrFull) || !strings.Contains(err.Error(), "stream TASKS, where tasks wait for nodes: maximum messages per subject exceeded; try again later") {
			t.Fatalf("after %d tasks: %v", accepted, err)
		}
		nc, _ := operatorOf(t, srv) // for all tenants
		if ack := ask(t, nc, "rath.task.other.operator.agent", `{"id":"r0","input":"x"}`); ack["error"] != nil {
			t.Errorf("another tenant is refused: %v", ack)
		}
		n := startNode(t, srv, "node-2")
		if r := tenantResult(t, n.conn, "other", "r0"); r.State != run.Succeeded {
			t.Errorf("the other tenant: %+v", r)
		}
		if err := submit(); err != nil {
			t.Errorf("later: %v", err)
		}
		n.stop()
	})
}

// TestFullEventStreams fills the event streams while a run executes: clients get the reason
// and the remedy. With room again the run ends, and so does the run whose task was accepted
// meanwhile, on the same node.
func TestFullEventStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := natstest.Start(t, nil)
		n := startNode(t, srv, "node-1")
		nc, js := operatorOf(t, srv)
		limit := func(bytes func(have uint64) int64) {
			t.Helper()
			for p := range n.conn.Streams.Partitions() {
				s := must.Get(js.Stream(t.Context(), streams.EventStream(n.conn.Streams.Generation(), p)))(t)
				cfg := s.CachedInfo().Config
				cfg.MaxBytes = bytes(s.CachedInfo().State.Bytes)
				must.Get(js.UpdateStream(t.Context(), cfg))(t)
			}
		}
		submit(t, nc, "hold", `{"id":"open"}`)
		time.Sleep(5 * time.Second)
		limit(func(have uint64) int64 { return max(int64(have), 1) })
		submit(t, nc, "agent", `{"id":"new","input":"x"}`)
		close(n.hold)
		refused := ask(t, nc, "rath.ctl.default.anonymous.open.rebudget", `{"id":"c1","budget":{"tokens":9}}`)
		if text := fmt.Sprint(refused["error"]); refused["code"] != "unavailable" || !strings.Contains(text, "archive old data or raise the limit") {
			t.Errorf("what cannot be stored is answered with %v", refused)
		}
		time.Sleep(2 * time.Minute)
		if r := ask(t, nc, "rath.query.default.run", `{"run":"open"}`); r["state"] != "running" {
			t.Errorf("without room the run is %v", r)
		}
		limit(func(uint64) int64 { return 16 << 20 })
		time.Sleep(time.Minute)
		succeeded(t, nc, "open", "new")
		n.stop()
	})
}
