package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

const (
	limitKeys, limitInFlight = 10_000, 64
	// limitBar is the time of a run with a limit by key, against a run without one: ten
	// percent above the first measurement.
	limitBar = 1.86
)

// BenchmarkLimitByKey runs 10,000 tasks, 64 in flight, of a workflow without a step: without
// a limit, and with a limit of one run for each of 10,000 keys. It fails where the commits
// of the grants cost more than their part.
func BenchmarkLimitByKey(b *testing.B) {
	offer := func(name string, l *run.Limit) flow.Registration {
		return flow.Registration{Name: name, Revision: "1", Limit: l, New: func() flow.Workflow {
			return flow.Func(func(_ context.Context, s session.Session) (session.Session, error) { return s, nil })
		}}
	}
	n := must.Get(node.Start(b.Context(), &node.Options{Store: b.TempDir(), NATS: node.NATS{Port: -1}, Slots: limitInFlight, Workflows: []flow.Registration{
		offer("free", nil), offer("limited", &run.Limit{Key: []string{"tag.key"}, Concurrency: 1}),
	}}))(b)
	defer n.Close()
	c := must.Get(n.Client(b.Context()))(b)
	defer c.Close()
	round := 0
	all := func(workflow string) time.Duration {
		round++
		var next atomic.Int64
		var work sync.WaitGroup
		began := time.Now()
		for range limitInFlight {
			work.Go(func() {
				for i := next.Add(1); i <= limitKeys; i = next.Add(1) {
					r, err := c.Do(b.Context(), workflow, messages.Task{ID: run.ID(fmt.Sprintf("%s-%d-%d", workflow, round, i)), Tags: run.Tags{"key": fmt.Sprint(i)}}, nil)
					if err != nil || r.State != run.Succeeded {
						b.Errorf("%+v: %v", r, err)
						return
					}
				}
			})
		}
		work.Wait()
		return time.Since(began) / limitKeys
	}
	for b.Loop() {
		free, limited := all("free"), all("limited")
		part := float64(limited) / float64(free)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(free.Microseconds())/1e3, "ms/free")
		b.ReportMetric(float64(limited.Microseconds())/1e3, "ms/limited")
		b.ReportMetric(part, "part")
		if part > limitBar {
			b.Errorf("a run with a limit takes %.2f of a run without one (%v of %v), the bar is %.2f", part, limited, free, limitBar)
		}
	}
}
