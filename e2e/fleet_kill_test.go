//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/fleet"
)

// drawSeed is the seed of a test that plays one.
func drawSeed() uint64 {
	if *flagSeed != 0 {
		return *flagSeed
	}
	return uint64(time.Now().UnixNano())
}

// TestFleetKill kills nodes of a fleet on one NATS server with -9 under load:
// every run ends, each has one result, and no call was executed twice in one
// attempt.
func TestFleetKill(t *testing.T) {
	w := newWorld(t, drawSeed(), shape{servers: 1, nodes: 3, slots: 8})
	kills := 0
	w.work(20*time.Second, 8, func(ctx context.Context) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(500+w.random.IntN(1500)) * time.Millisecond):
			}
			p := w.f.Nodes()[w.random.IntN(3)]
			if err := p.Kill(); err != nil && !errors.Is(err, fleet.ErrNotRunning) {
				w.fatal(err)
			}
			kills++
			if err := p.Start(); err != nil {
				w.fatal(err)
			}
		}
	})
	t.Logf("%d kills", kills)
	w.check()
}

// TestRollingRestart restarts every node and router in the orderly way, twice,
// under load: whatever clients ask in the meantime is answered, at the first
// try, and who waits for results gets them without asking.
func TestRollingRestart(t *testing.T) {
	w := newWorld(t, drawSeed(), shape{servers: 3, nodes: 3, routers: 2, slots: 8})
	w.load.patient = true
	w.work(time.Minute, 6, func(ctx context.Context) {
		n := newNemesis(w)
		for range 2 {
			if err := n.rollNodes(ctx, w.random); err != nil && ctx.Err() == nil {
				w.fail("%v", err)
			}
		}
		if ctx.Err() != nil {
			w.fail("not all were restarted within a minute")
		}
	})
	w.load.mu.Lock()
	for what, n := range w.load.refused {
		w.fail("%d of the requests to %s were not answered (messages to runs: %v)", n, what, w.load.why)
	}
	w.load.mu.Unlock()
	w.check()
}
