package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/wire"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// TestOpenRuns lists the open runs below hundreds of ended ones: runs that execute, wait
// for an operator, for branches and for a slot. It takes as many requests as without ended
// runs, and returns the open runs of a list of all runs.
func TestOpenRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const branches, slots, ended, page = 6, 4, 700, 4
		srv := natstest.Start(t, nil)
		goOn := make(chan struct{})
		spread := flow.Registration{Name: "spread", Revision: "1", New: func() flow.Workflow {
			return flow.Func(func(ctx context.Context, v session.Session) (session.Session, error) {
				j, err := flow.FanOut(ctx, v, flow.Repeat(branches, flow.Func(func(ctx context.Context, b session.Session) (session.Session, error) {
					select {
					case <-goOn:
						return b, nil
					case <-ctx.Done():
						return b, context.Cause(ctx)
					}
				})), nil)
				if err != nil {
					return v, err
				}
				return flow.Merge(ctx, j, flow.Pick(0))
			})
		}}
		busy := startNodeWith(t, srv, "node-1", &spec{slots: slots, pool: "busy", only: []flow.Registration{spread}, members: newMembers()})
		n := startNodeWith(t, srv, "node-2", &spec{more: []flow.Registration{question}, members: newMembers()})
		nc := guest(t, srv)
		submit(t, nc, "question", `{"id":"asked"}`)
		submit(t, nc, "hold", `{"id":"held"}`)
		submit(t, nc, "spread", `{"id":"spread"}`)
		time.Sleep(10 * time.Second)
		submit(t, nc, "spread", `{"id":"behind"}`)
		time.Sleep(10 * time.Second)

		admin, _ := operatorOf(t, srv)
		var asked atomic.Int64
		must.Get(admin.Subscribe("$JS.API.>", func(m *nats.Msg) {
			if strings.Contains(m.Subject, "."+streams.StreamLineage) {
				asked.Add(1)
			}
		}))(t)
		must.Do(t, admin.Flush())
		open := []run.State{run.Queued, run.Running, run.Waiting, run.NeedsReview}
		list := func(states []run.State) (ids []string, pages int) {
			t.Helper()
			for q := (wire.Query{States: states, Limit: page}); ; pages++ {
				data := must.Get(n.conn.Requests.Query(t.Context(), session.DefaultTenant, messages.QueryRuns, q))(t)
				var out wire.Runs
				must.Do(t, json.Unmarshal(data, &out))
				for _, r := range out.Runs {
					if !r.State.Terminal() {
						ids = append(ids, fmt.Sprint(r.Run, " ", r.State))
					}
				}
				if q.After = out.Next; q.After == 0 {
					slices.Sort(ids)
					return ids, pages + 1
				}
			}
		}
		count := func() (ids []string, requests int64) {
			t.Helper()
			asked.Store(0)
			ids, _ = list(open)
			synctest.Wait()
			return ids, asked.Load()
		}
		first, before := count()
		if len(first) != 4+slots {
			t.Errorf("%d runs are open, want %d: %q", len(first), 4+slots, first)
		}
		for i := range ended {
			submit(t, nc, "agent", fmt.Sprintf(`{"id":"r%d","input":"x"}`, i))
		}
		time.Sleep(20 * time.Second)
		ids, after := count()
		asked.Store(0)
		if _, err := n.conn.Requests.Query(t.Context(), session.DefaultTenant, messages.QueryLive, wire.Query{Run: "behind"}); err != nil {
			t.Error(err)
		}
		if synctest.Wait(); asked.Load() > 0 {
			t.Errorf("where a queued run waits took %d requests of lineage, which does not say it", asked.Load())
		}
		all, pages := list(nil)
		if pages*page < ended {
			t.Errorf("%d pages of %d: the test shows little", pages, page)
		}
		if !slices.Equal(ids, all) || !slices.Equal(ids, first) {
			t.Errorf("open are\n%q, in a list of all runs\n%q, and before others ended\n%q", ids, all, first)
		}
		if after > before {
			t.Errorf("a list of open runs took %d requests below %d that have ended, and %d with none", after, ended, before)
		}
		close(goOn)
		close(n.hold)
		time.Sleep(10 * time.Second)
		n.stop()
		busy.stop()
	})
}
