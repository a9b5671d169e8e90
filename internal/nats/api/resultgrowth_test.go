package api_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// TestAskingForAResult asks for the result of a run that waits, in a session with more and
// more runs before it: a client asks every few seconds, and that costs the same.
func TestAskingForAResult(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		n := startNode(t, srv, "node-1")
		c, _ := visitor(t, srv)
		ctx := t.Context()
		done := 0
		for _, before := range []int{10, 200} {
			for ; done < before; done++ {
				task := messages.Task{ID: run.ID(fmt.Sprintf("a%d", done)), Session: "talk", Input: text("x")}
				if r, err := c.Do(ctx, "agent", task, nil); err != nil || r.Err() != nil {
					t.Fatal(r, err)
				}
			}
			id := run.ID(fmt.Sprintf("h%d", before))
			must.Get(c.Submit(ctx, "hold", messages.Task{ID: id, Session: "talk"}))(t)
			time.Sleep(2 * time.Second)
			var took uint64
			for range 2 { // the first request reads the new commits
				_, from := n.conn.Traffic()
				_, err := c.Runs.Result(ctx, id)
				if !errors.Is(err, run.ErrState) {
					t.Errorf("the result of a run that has not ended: %v", err)
				}
				_, to := n.conn.Traffic()
				took = to - from
			}
			if took > 20 {
				t.Errorf("with %d runs before it a question took %d messages", before, took)
			}
			must.Do(t, c.Runs.Cancel(ctx, id, messages.Control{}))
			time.Sleep(time.Second)
		}
		n.stop()
	})
}
