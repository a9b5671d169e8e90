package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/engine"
	"github.com/rathcluster/rath/internal/engine/inprocess"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/session"
)

// fanOutDelay is the model's delay for its one call in each branch. Ideally, all branches
// together take no longer.
const fanOutDelay = 50 * time.Millisecond

// fanOut opens a number of branches with one model call each, requires that all succeed,
// and adopts the first.
func fanOut(branches int) flow.Workflow {
	return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
		j, err := flow.FanOut(ctx, s, flow.Repeat(branches, &flow.Agent{Name: "a", Prompt: "You work."}), nil)
		if err != nil {
			return s, err
		}
		if n := len(j.Succeeded()); n != branches {
			return s, fmt.Errorf("%d of %d branches succeeded", n, branches)
		}
		return flow.Merge(ctx, j, flow.Pick(0))
	})
}

// BenchmarkFanOut measures fan-outs on one node, in memory and durable, against
// one call of the model.
func BenchmarkFanOut(b *testing.B) {
	m := model{delay: fanOutDelay}
	bar := func(b *testing.B, spans []time.Duration, most float64) {
		x := median(spans).Seconds() / fanOutDelay.Seconds()
		b.ReportMetric(x, "x-ideal")
		b.ReportMetric(most, "x-bar")
		if x > most {
			b.Errorf("%.2f times one call of the model, bar %.2f", x, most)
		}
	}
	b.Run("memory/64", func(b *testing.B) {
		var spans []time.Duration
		for b.Loop() {
			began := time.Now()
			rt := &inprocess.Runtime{Runtime: engine.Runtime{Models: m}}
			must.Get(rt.Run(b.Context(), fanOut(64), session.New(session.UserText("go"))))(b)
			spans = append(spans, time.Since(began))
		}
		bar(b, spans, 1.5)
	})
	for branches, most := range map[int]float64{64: 2, 256: 3} {
		b.Run(fmt.Sprint("durable/", branches), func(b *testing.B) {
			n := must.Get(node.Start(b.Context(), &node.Options{
				Store: b.TempDir(), NATS: node.NATS{Port: -1}, Models: node.Models{Source: m}, Slots: 300,
				Workflows: []flow.Registration{{Name: "fanned", Revision: "1", New: func() flow.Workflow { return fanOut(branches) }}},
			}))(b)
			b.Cleanup(func() { must.Report(b, n.Close()) })
			nc := dial(b, n.URL())
			load(b, nc, "fanned", newPrefix(), 1, 1)
			var spans []time.Duration
			cpu := cpuTime()
			for b.Loop() {
				spans = append(spans, load(b, nc, "fanned", newPrefix(), 1, 1)...)
			}
			b.ReportMetric((cpuTime()-cpu).Seconds()*1e3/float64(b.N*branches), "cpu-ms/branch")
			bar(b, spans, most)
		})
	}
}
