//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/internal/testkit/must"
)

var flagFull = flag.Int("full", 3, "how often TestFullDiskLineage fills the disk")

// TestFullDiskLineage repeatedly fills the disk of "rath dev" at work, so that its server
// restarts in place. After each time the list of runs shows every reported end, and finally
// the audit finds all lineage.
func TestFullDiskLineage(t *testing.T) {
	t.Parallel()
	at := newDiskOf(t, 700<<20)
	d := newDesk(t)
	store := []string{"--store", filepath.Join(at.mount, "store")}
	dev, url := d.dev(store...)
	nc := must.Get(nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond)))(t)
	defer nc.Close()
	for round := range *flagFull {
		ctx, stop := context.WithCancel(t.Context())
		var load sync.WaitGroup
		// Small ones: the stream of results must hold those of all rounds.
		s := &submitter{nc: nc, input: "small", refused: map[string]int{}}
		for i := range 4 {
			load.Go(func() { s.run(ctx, fmt.Sprintf("r%d-s%d", round, i)) })
		}
		dev.until("acknowledged task", s.some)
		time.Sleep(time.Duration(300+170*(round%7)) * time.Millisecond)
		at.fill()
		dev.until("refused task", s.none)
		time.Sleep(time.Duration(round%4) * 400 * time.Millisecond)
		stop()
		load.Wait()
		at.free()
		// A server whose disk fails again and again starts again up to a minute later.
		dev.until("run that ends again", func() bool {
			again := append([]string{"submit", "agent", "-m", "again", "--id", fmt.Sprint("again", round), "--wait"}, store...)
			return d.start(again...).wait().code == 0
		})
		s.mu.Lock()
		acked := s.acked
		s.mu.Unlock()
		for _, id := range acked {
			succeeds(t, nc, id)
		}
		listed := states(t, d, store)
		for _, id := range acked {
			if listed[id] != "succeeded" {
				t.Errorf("round %d: run %s has its result, and the list shows %q", round, id, listed[id])
			}
		}
		if t.Failed() {
			break
		}
	}
	// Results that were not stored are stored again, after a while.
	dev.until("audit that finds everything", func() bool {
		return d.start(append([]string{"cluster", "audit"}, store...)...).wait().code == 0
	})
	dev.signal(syscall.SIGINT)
	dev.wait()
	d.rath(append([]string{"cluster", "audit"}, store...)...).want(t, 0)
}

// states returns how the list shows all runs.
func states(t *testing.T, d *desk, store []string) map[string]string {
	t.Helper()
	o := d.rath(append([]string{"ps", "--limit", "0", "--format", "jsonl"}, store...)...)
	o.want(t, 0)
	all := map[string]string{}
	for line := range strings.Lines(o.stdout) {
		var r struct{ Run, State string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all[r.Run] = r.State
	}
	return all
}
