package natsbus_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/natsbus"
	"github.com/rathcluster/rath/run"
)

// TestTenantAtItsLimit: who has as many tasks waiting as may wait is told so, and
// what to do. Another tenant is not, and there is room
// again once nodes take tasks.
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
		if !errors.Is(err, run.ErrBusy) || !errors.Is(err, natsbus.ErrFull) || !strings.Contains(err.Error(), "try again later") {
			t.Fatalf("after %d tasks: %v", accepted, err)
		}
		nc, _ := operatorOf(t, srv) // for all tenants
		if ack := ask(t, nc, "rath.task.other.agent", `{"id":"r0","input":"x"}`); ack["error"] != nil {
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
