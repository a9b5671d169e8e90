package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/messages"
)

// TestBurstWaits submits 600 tasks of one workflow while no slot is free: they wait
// in logs within a second, where they are counted, and none is left in its stream.
func TestBurstWaits(t *testing.T) {
	withGuest(t, func(t *testing.T, srv *natsserver.Server, nc *nats.Conn) {
		a := startNodeWith(t, srv, "node-a", &spec{slots: 1})
		time.Sleep(3 * time.Second)
		submit(t, nc, "hold", `{"id":"holds"}`)
		time.Sleep(time.Second)
		const burst = 600
		for i := range burst {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"x"}`, i))
		}
		time.Sleep(time.Second)
		if n := a.pending(t); n != 0 {
			t.Errorf("%d of %d tasks are in no log after a second", n, burst)
		}
		want := dispatch.PoolWaiting{Pool: dispatch.DefaultPool, Class: messages.ClassInteractive, Runs: burst}
		if got, err := a.conn.Dispatch.Waiting(t.Context()); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%v wait, %v; want %v", got, err, want)
		}
		close(a.hold)
		a.stop()
	})
}
