//go:build e2e && linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/load"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// benchScaling compares the rate of 1 to 4 nodes whose slots are full. The slots
// are few, so that the machine's processors are no limit.
func benchScaling(b *testing.B, t *table) {
	const (
		latency, slots, turns = 500 * time.Millisecond, 8, 4
		warm, window          = 3 * time.Second, 10 * time.Second
	)
	a := newArena(b, 3, 1, slots, latency)
	var one float64
	for n := 1; n <= 4; n++ {
		if n > 1 {
			a.must(a.f.AddNodes(b.Context(), 1, a.program))
		}
		ctx, cancel := context.WithCancel(b.Context())
		loaded := make(chan *load.Report, 1)
		go func() {
			r, err := load.Run(ctx, a.conn, &load.Options{
				Workflow: "calls", Tasks: load.MaxTasks, InFlight: 2 * n * slots, Duration: warm + window, Task: number(turns),
			})
			must.Report(b, err)
			loaded <- r
		}()
		time.Sleep(warm) // the beginning is not measured
		meter, before, began := load.NewMeter(a.processes()...), a.model.Answered(), time.Now()
		time.Sleep(window)
		rate := float64(a.model.Answered()-before) / time.Since(began).Seconds()
		uses := meter.Read()
		r := <-loaded
		cancel()
		if r == nil || r.Failed+r.Busy+r.Unfinished > 0 {
			b.Fatalf("not all runs ended well: %+v", r)
		}
		if n == 1 {
			one = rate
		}
		figure := fmt.Sprintf("%.1f calls/s, %.0f%% of linear, %.0f%% ideal", rate, 100*rate/one/float64(n), 100*rate*latency.Seconds()/float64(n*slots))
		what := fmt.Sprintf("%d nodes of %d slots", n, slots)
		if n == 1 {
			t.note(what, figure)
		} else {
			t.bar(b, rate >= 0.9*one*float64(n), what, figure, ">= 90%")
		}
		b.ReportMetric(rate/one/float64(n), fmt.Sprintf("x-linear/%d", n))
		t.note("", cpu(uses)+", machine "+busyness())
	}
}

// benchFanOut measures wide fan-outs of short model calls on three nodes that
// have room for all branches at once, against the time of one call.
func benchFanOut(b *testing.B, t *table) {
	const latency, tries = 50 * time.Millisecond, 5
	a := newArena(b, 3, 3, 128, latency)
	for _, n := range []int{64, 256} {
		o := load.Options{Workflow: "branches", InFlight: 1, Task: number(n)}
		o.Tasks = 1
		a.run(o) // warm
		o.Tasks, o.Processes = tries, a.processes()
		r := a.run(o)
		t.note(fmt.Sprintf("%d branches, 3 nodes", n), fmt.Sprintf("p50 %s, %.1f x ideal; best %s", load.Short(r.End.P50), r.End.P50.Seconds()/latency.Seconds(), load.Short(r.End.Min)))
		t.note("", cpu(r.CPU)+", machine "+busyness())
		b.ReportMetric(r.End.P50.Seconds()/latency.Seconds(), fmt.Sprintf("x-ideal/%d", n))
	}
}

// firstStepP50 and firstStepP99 bound the time until a task's first step begins on an idle
// fleet.
const firstStepP50, firstStepP99 = 4 * time.Millisecond, 15 * time.Millisecond

// benchDispatch measures the time from the publication of a task to the arrival of its
// first model call, on an idle fleet.
func benchDispatch(b *testing.B, t *table) {
	const tasks = 200
	a := newArena(b, 3, 3, 8, 0)
	o := load.Options{Workflow: "calls", Tasks: 20, InFlight: 1, Task: number(1), First: a.model.First}
	a.run(o) // warm
	o.Tasks, o.Processes = tasks, a.processes()
	r := a.run(o)
	t.bar(b, r.FirstStep.P50 <= firstStepP50 && r.FirstStep.P99 <= firstStepP99, "publish to first step",
		fmt.Sprintf("p50 %s p99 %s max %s", load.Short(r.FirstStep.P50), load.Short(r.FirstStep.P99), load.Short(r.FirstStep.Max)), "<= 4, 15ms")
	t.note("publish to ack", fmt.Sprintf("p50 %s p99 %s max %s", load.Short(r.Submit.P50), load.Short(r.Submit.P99), load.Short(r.Submit.Max)))
	t.note("publish to result", fmt.Sprintf("p50 %s p99 %s max %s", load.Short(r.End.P50), load.Short(r.End.P99), load.Short(r.End.Max)))
	t.note("", fmt.Sprintf("%d tasks, load %s, %s", tasks, busyness(), cpu(r.CPU)))
	b.ReportMetric(r.FirstStep.P50.Seconds()*1e3, "ms-p50")
	b.ReportMetric(r.FirstStep.P99.Seconds()*1e3, "ms-p99")
}

// benchPools measures the time until the tasks of a busy pool reach their first step, with
// and without another pool that has no nodes and 20,000 waiting tasks of 20 tenants.
func benchPools(b *testing.B, t *table) {
	const (
		tenants, each = 20, 1000
		tasks, rounds = 300, 5
	)
	a := newArena(b, 3, 3, 16, 10*time.Millisecond)
	user, password := a.f.NodeLogin()
	node, err := api.Connect(b.Context(), &streams.Options{Options: conn.Options{URL: a.f.URLs(0), User: user, Password: password, Inbox: conn.NodeInbox}, Level: streams.Lazy, Replicas: 3})
	a.must(err)
	defer func() { a.check(node.Conn.Close()) }()
	a.must(node.Dispatch.Registry.Register(b.Context(), "absent", []messages.Workflow{{Name: "absent", Revision: "1", Description: "No node runs it."}}))
	// Other work on this machine slows some rounds: the best of several is the fleet's
	// performance.
	best := func() load.Distribution {
		var of load.Distribution
		for range rounds {
			r := a.run(load.Options{Workflow: "calls", Tasks: tasks, InFlight: 4, Task: number(2), First: a.model.First})
			if of.P99 == 0 || r.FirstStep.P99 < of.P99 {
				of = *r.FirstStep
			}
		}
		return of
	}
	best() // warm
	alone := best()
	began := time.Now()
	together(tenants*each, 64, func(i int) {
		ack, err := a.operator.Request(messages.TaskSubject(session.Tenant(fmt.Sprint("t", i%tenants)), messages.UserOperator, "absent"), fmt.Appendf(nil, `{"id":"w%d"}`, i), time.Minute)
		if a.check(err); err == nil && bytes.Contains(ack.Data, []byte(`"error"`)) {
			b.Errorf("a task was not taken: %s", ack.Data)
		}
	})
	flooded := time.Since(began)
	a.until("the tasks wait in logs", 5*time.Minute, func() bool {
		all, err := node.Dispatch.Waiting(b.Context())
		waiting := 0
		for _, w := range all {
			if w.Pool == "absent" {
				waiting += w.Runs
			}
		}
		return err == nil && waiting >= tenants*each*9/10
	})
	beside := best()
	t.note("a pool alone", fmt.Sprintf("first step p50 %s p99 %s", load.Short(alone.P50), load.Short(alone.P99)))
	t.bar(b, beside.P99 <= alone.P99*6/5, "beside 20,000 tasks", fmt.Sprintf("first step p50 %s p99 %s", load.Short(beside.P50), load.Short(beside.P99)), "<= 120%")
	t.note("", fmt.Sprintf("submitted in %s, load %s", load.Short(flooded), busyness()))
	b.ReportMetric(beside.P99.Seconds()/alone.P99.Seconds(), "x-p99")
}
