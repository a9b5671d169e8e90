package api_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/natsserver"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestCancelledBeforeItsTask cancels a run, and submits its task then: it ends as
// cancelled, and no other task has its id.
func TestCancelledBeforeItsTask(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx := t.Context()
		if a := ask(t, nc, "rath.ctl.default.anonymous.r1.cancel", `{"reason":"too early"}`); a["done"] != true {
			t.Fatal(a)
		}
		task := messages.Task{ID: "r1", Input: text("one")}
		known, err := c.Known(ctx, "hold", []messages.Task{task})
		if err != nil || !errors.Is(known[0], run.ErrState) || errors.Is(known[0], run.ErrKeyReused) {
			t.Errorf("of the id is known: %v, %v; want %v", known, err, run.ErrState)
		}
		if r, err := c.Do(ctx, "hold", task, nil); err != nil || r.State != run.Cancelled {
			t.Errorf("the task ended as %+v, %v", r, err)
		}
		n.stop()
	})
}
