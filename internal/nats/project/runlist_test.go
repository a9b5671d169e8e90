package project

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/lineage"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/natstest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestRunsThatWait lists runs that wait, page by page, with a few requests for each page:
// also the older pages do not read the tree of each run.
func TestRunsThatWait(t *testing.T) {
	const runs, page, most = 1500, 100, 6 // requests for a page
	layer.InBubble(t, func(t *testing.T, c *Projections, w *natstest.Wire) {
		p := newRelay(t, c, c.HomeOf(session.DefaultTenant, "r"))
		var all [][]lineage.Record
		for i := range runs {
			r := lineage.Record{
				Schema: lineage.Schema, Tenant: session.DefaultTenant, Run: run.ID(fmt.Sprint("r", i)), Workflow: "agent",
				Seq: uint64(i + 1), Commit: 1, Epoch: 1, Hash: "h", Time: int64(i + 1),
			}
			r.Session = c.HomeOf(r.Tenant, r.Run)
			r.Root = r.Session
			opened, submitted := r, r
			opened.Kind, opened.K, opened.Via = lineage.Opened, 1, session.OpenLeaf
			submitted.Kind, submitted.K, submitted.State = lineage.Submitted, 2, string(run.Queued)
			all = append(all, []lineage.Record{opened, submitted})
		}
		if err := p.publish(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int64
		w.Set(nil, func(b []byte) bool {
			for _, api := range []string{"DIRECT.GET.", "STREAM.MSG.GET."} {
				asked.Add(int64(bytes.Count(b, []byte("PUB $JS.API."+api+streams.StreamLineage))))
			}
			return true
		})
		h := &history{c: c, tenant: session.DefaultTenant, first: 1, last: runs}
		listed, pages := 0, 0
		for before := uint64(0); ; {
			rows, next, err := h.Runs(t.Context(), before, page, Choice{Now: time.UnixMilli(runs + 1)})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				if r.State != run.Queued {
					t.Fatalf("run %s is %s", r.ID, r.State)
				}
			}
			listed, pages = listed+len(rows), pages+1
			if before = next; next == 0 {
				break
			}
		}
		w.Set(nil, nil)
		if listed != runs {
			t.Errorf("%d runs are listed, want %d", listed, runs)
		}
		if n := asked.Load(); n > int64(pages)*most {
			t.Errorf("%d pages took %d requests, want at most %d each", pages, n, most)
		}
	})
}
