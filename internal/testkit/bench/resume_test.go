package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/flow"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
	"github.com/rathcluster/rath/tool"
)

const (
	resumedSteps = 1000
	// resumeBar is the time that a resumption takes longer than a run of one step.
	resumeBar = 50 * time.Millisecond
)

// BenchmarkResume has runs of 1,000 steps whose last one failed continue there, and runs of
// one step. It fails where the first take longer than the second by more than the bar.
func BenchmarkResume(b *testing.B) {
	var fails atomic.Bool
	long := flow.Registration{Name: "long", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			for i := range resumedSteps {
				if _, err := flow.Do(ctx, "step", func(context.Context) (int, error) {
					if i == resumedSteps-1 && fails.Load() {
						return 0, errors.New("away")
					}
					return i, nil
				}, tool.NonIdempotent); err != nil {
					return s, err
				}
			}
			return s.With(session.UserText("done")), nil
		})
	}}
	one := flow.Registration{Name: "one", Revision: "1", New: func() flow.Workflow {
		return flow.Func(func(ctx context.Context, s session.Session) (session.Session, error) {
			_, err := flow.Do(ctx, "step", func(context.Context) (int, error) { return 1, nil }, tool.NonIdempotent)
			return s.With(session.UserText("done")), err
		})
	}}
	n := must.Get(node.Start(b.Context(), &node.Options{Store: b.TempDir(), NATS: node.NATS{Port: -1}, Workflows: []flow.Registration{long, one}}))(b)
	defer n.Close()
	c := must.Get(n.Client(b.Context()))(b)
	defer c.Close()
	ended := func(id run.ID, want run.State) {
		b.Helper()
		if r, err := c.Wait(b.Context(), id); err != nil || r.State != want {
			b.Fatalf("run %s is %s, want %s: %s, %v", id, r.State, want, r.Error, err)
		}
	}
	var resumed, short []time.Duration
	i := 0
	for b.Loop() {
		i++
		id := run.ID(fmt.Sprint("long", i))
		fails.Store(true)
		must.Get(c.Submit(b.Context(), "long", messages.Task{ID: id}))(b)
		ended(id, run.Failed)
		fails.Store(false)
		began := time.Now()
		again := must.Get(c.Runs.Resume(b.Context(), id, messages.Control{}))(b)
		ended(again, run.Succeeded)
		resumed = append(resumed, time.Since(began))

		began = time.Now()
		id = must.Get(c.Submit(b.Context(), "one", messages.Task{ID: run.ID(fmt.Sprint("one", i))}))(b)
		ended(id, run.Succeeded)
		short = append(short, time.Since(began))
	}
	continues, alone := median(resumed), median(short)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(continues.Microseconds())/1e3, "ms/resumed")
	b.ReportMetric(float64(alone.Microseconds())/1e3, "ms/one-step")
	if continues > alone+resumeBar {
		b.Errorf("a run of %d steps continues at its last one in %v, a run of one step takes %v: the bar is %v more", resumedSteps, continues, alone, resumeBar)
	}
}
