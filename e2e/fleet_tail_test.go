//go:build e2e && linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/evidence/audit"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// tailer follows the lineage of the tenant, as "rath cluster tail -f" does, through all that
// happens to the fleet.
type tailer struct {
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	got map[string]bool // records, by name
	err error           // that ended it
}

// followLineage begins to follow; close ends it.
func followLineage(ctx context.Context, url string) (*tailer, error) {
	c, err := client.Connect(ctx, url, &client.Options{Name: "tail"})
	if err != nil {
		return nil, err
	}
	o := &tailer{done: make(chan struct{}), got: map[string]bool{}}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop = stop
	go func() {
		defer close(o.done)
		for r, err := range c.Lineage.Tail(following, "", "") {
			o.mu.Lock()
			if err == nil {
				o.got[recordName(&r.Record)] = true
			} else if !errors.Is(err, context.Canceled) {
				o.err = err
			}
			o.mu.Unlock()
		}
		if err := c.Close(); err != nil {
			o.mu.Lock()
			o.err = errors.Join(o.err, err)
			o.mu.Unlock()
		}
	}()
	return o, nil
}

// close ends the tailer and returns the error that ended it earlier, if any.
func (o *tailer) close() error {
	o.stop()
	<-o.done
	return o.err
}

// recordName returns the name that a record shares with its repetitions.
func recordName(r *messages.Record) string {
	return fmt.Sprintf("%s commit %d, %d: %s", r.Session, r.Commit, r.K, r.Kind)
}

// observed compares the tailer's messages with the contents of LINEAGE in the dump of the
// audit: it received everything, at the latest a moment after the fleet was healed.
func (w *world) observed(ctx context.Context) {
	w.t.Helper()
	dump, err := os.Open(w.path("dump.jsonl"))
	if err != nil {
		w.fail("lineage: %v", err)
		return
	}
	defer dump.Close()
	missing := map[string]uint64{}
	for m, err := range audit.ReadDump(dump) {
		if err != nil {
			w.fail("lineage: %v", err)
			return
		}
		if m.Stream != "LINEAGE" || len(m.Data) == 0 {
			continue
		}
		records, err := lineage.DecodeStored(m.Data)
		if err != nil {
			w.fail("lineage %d: %v", m.Seq, err)
			return
		}
		for _, r := range records {
			if r.Tenant == session.DefaultTenant {
				missing[recordName(&r)] = m.Seq
			}
		}
	}
	all := len(missing)
	began := time.Now()
	for ; ; sleep(ctx, 100*time.Millisecond) {
		w.tail.mu.Lock()
		maps.DeleteFunc(missing, func(name string, _ uint64) bool { return w.tail.got[name] })
		told := len(w.tail.got)
		w.tail.mu.Unlock()
		if len(missing) > 0 && time.Since(began) < relayed && ctx.Err() == nil {
			continue
		}
		w.t.Logf("lineage: %d records are stored, a tail told %d", all, told)
		break
	}
	names := slices.SortedFunc(maps.Keys(missing), func(a, b string) int { return int(missing[a]) - int(missing[b]) })
	for _, name := range names[:min(len(names), 5)] {
		w.fail("a tail skipped %d of %d records of lineage, among them %d: %s", len(names), all, missing[name], name)
	}
}
