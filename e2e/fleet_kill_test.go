//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/fleet"
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

// rolling is the fleet of the tests after this.
var rolling = shape{servers: 3, nodes: 3, routers: 2, slots: 8, steady: true}

// TestRollingRestart restarts every node and router in the orderly way,
// under load: every request in the meantime is done at the first try, if it can be
// done, and subscribers get results and events without asking.
func TestRollingRestart(t *testing.T) {
	w := newWorld(t, drawSeed(), rolling)
	w.orderly(func(ctx context.Context, n *nemesis) error {
		return n.rollNodes(ctx, w.random)
	})
	w.check()
}

// TestRollingUpgrade moves every node and router to the next release and back,
// one by one under load, with the same demands: both releases are at work at the
// same time on the same sessions.
func TestRollingUpgrade(t *testing.T) {
	w := newWorld(t, drawSeed(), rolling)
	var versions []map[string]int
	w.orderly(func(ctx context.Context, n *nemesis) error {
		all := len(n.workers())
		for _, half := range []struct {
			to   string
			next int
		}{{n.next, all}, {"", 0}} {
			if err := n.upgrade(ctx, half.to, n.workers()...); err != nil {
				return err
			}
			versions = append(versions, w.versions(ctx, all, half.next))
		}
		return nil
	})
	t.Logf("versions after each half: %v", versions)
	if len(versions) == 2 && (versions[0][nextVersion] != 5 || versions[1][nextVersion] != 0) {
		t.Error("not every node and router was at the next release and came back")
	}
	w.check()
}

// orderlyMost bounds the time of orderly operations.
const orderlyMost = 4 * time.Minute

// orderly lets the load run for at least 20 seconds during an operation that clients must
// not notice: every request succeeds, unless the client knows why it cannot, and the test
// waits for results and events.
func (w *world) orderly(do func(ctx context.Context, n *nemesis) error) {
	w.t.Helper()
	n := newNemesis(w)
	w.load.patient = true
	w.lacks = w.load.undone
	w.work(20*time.Second, 6, func(context.Context) {
		// The operation is completed, however slow the machine: the load waits for it.
		ctx, cancel := context.WithTimeout(w.t.Context(), orderlyMost)
		defer cancel()
		began := time.Now()
		err := errors.Join(do(ctx, n), ctx.Err())
		took := time.Since(began).Round(time.Millisecond)
		if err != nil {
			w.fail("it was not done, after %v: %v", took, err)
		}
		w.t.Logf("it took %v", took)
	})
	if ids := w.load.unheard(w.t.Context()); len(ids) > 0 {
		w.fail("no event told the ends of %d runs: %v", len(ids), ids)
	}
	w.asked()
}

// versions returns the number of live nodes by release, once a number of them is listed,
// and a number of them at the next release. A ready node writes its entry a moment later,
// and a server may see it, and the removal of the previous entry, even later.
func (w *world) versions(ctx context.Context, nodes, next int) map[string]int {
	for until := time.Now().Add(15 * time.Second); ; sleep(ctx, 50*time.Millisecond) {
		data, err := w.load.request(ctx, "rath.query.default.nodes", map[string]any{})
		var all struct {
			Nodes []struct {
				Version string `json:"version"`
			} `json:"nodes"`
		}
		if err == nil {
			err = json.Unmarshal(data, &all)
		}
		if err != nil {
			w.fail("nodes: %v", err)
			return nil
		}
		count := map[string]int{}
		for _, n := range all.Nodes {
			count[n.Version]++
		}
		if (len(all.Nodes) == nodes && count[nextVersion] == next) || time.Now().After(until) || ctx.Err() != nil {
			return count
		}
	}
}
