package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
)

const (
	liveRuns  = 64
	liveAsked = 500
	// liveBar bounds the 99th percentile of two queries of a run in flight: its status, and
	// its transcript with the current step.
	liveBar = 20 * time.Millisecond
)

// BenchmarkLive measures how long a client without credentials waits for the current step
// of a run in flight, and for its transcript with it, as show does, while 64 runs wait for
// their model. It fails if the 99th percentile reaches 20 ms.
func BenchmarkLive(b *testing.B) {
	model := newHanging(liveRuns)
	store := b.TempDir()
	n := must.Get(node.Start(b.Context(), &node.Options{Store: store, NATS: node.NATS{Port: -1}, Slots: liveRuns, Models: node.Models{Source: model, Default: "m"}}))(b)
	defer n.Close()
	defer close(model.answer)
	at := must.Get(supervise.ReadAttachment(store))(b)
	c := must.Get(client.Connect(b.Context(), at.URL, nil))(b)
	defer c.Close()
	ids := make([]messages.RunInfo, liveRuns)
	for i := range ids {
		ids[i].Run = must.Get(c.Submit(b.Context(), "agent", messages.Task{Input: json.RawMessage(`"hello"`)}))(b)
	}
	for range liveRuns {
		<-model.asked
	}
	asks := map[string]func(context.Context, *messages.RunInfo) error{
		"live": func(ctx context.Context, r *messages.RunInfo) error {
			l, err := c.Runs.Live(ctx, r.Run)
			if err == nil && (len(l.Steps) != 1 || l.Steps[0].Doing != "asks") {
				err = fmt.Errorf("it tells %+v", l)
			}
			return err
		},
		"show": func(ctx context.Context, r *messages.RunInfo) error {
			info, err := c.Runs.Get(ctx, r.Run)
			if err == nil {
				_, err = c.Sessions.Get(ctx, string(info.Session))
			}
			if err == nil {
				_, err = c.Runs.Live(ctx, r.Run)
			}
			return err
		},
	}
	for name, ask := range asks {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				took := make([]time.Duration, liveAsked)
				used := cpuTime()
				for i := range took {
					began := time.Now()
					must.Do(b, ask(b.Context(), &ids[i%liveRuns]))
					took[i] = time.Since(began)
				}
				used = cpuTime() - used
				slices.Sort(took)
				p50, p99 := took[liveAsked/2], took[liveAsked*99/100]
				b.ReportMetric(float64(p50.Microseconds())/1000, "ms-p50")
				b.ReportMetric(float64(p99.Microseconds())/1000, "ms-p99")
				b.ReportMetric(float64(liveBar.Milliseconds()), "ms-bar")
				b.ReportMetric(float64(used.Microseconds())/liveAsked, "CPU-us/ask")
				if p99 > liveBar {
					b.Errorf("%s: the slowest of a hundred takes %v, bar %v", name, p99, liveBar)
				}
			}
		})
	}
}
