//go:build e2e && linux

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/rathcluster/rath/actors"
	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/load"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/run"
)

// benchWaiting lets 1,000 runs wait for an approval, measures their resources, and approves
// all.
func benchWaiting(b *testing.B, t *table) {
	const (
		runs      = 1000
		atOnce    = 64
		resumeBar = 10 * time.Second
		logBar    = 4096
	)
	a := newArena(b, 3, 3, 64, 0)
	o := a.observe()
	ask := func(n int, name string) {
		before := o.count("run.waiting")
		together(n, atOnce, func(i int) {
			for {
				_, err := a.client.Submit(b.Context(), "question", messages.Task{ID: run.ID(fmt.Sprint(name, "-", i))})
				if !errors.Is(err, run.ErrBusy) {
					a.check(err)
					return
				}
				time.Sleep(20 * time.Millisecond) // as it asks for
			}
		})
		a.until(fmt.Sprint(n, " runs wait"), 2*time.Minute, func() bool { return o.count("run.waiting") >= before+n })
	}
	// say answers n questions, like a user with the list.
	say := func(n int) (committed, resumed time.Duration) {
		var open []client.Question
		a.until("the questions are on the list", time.Minute, func() bool {
			var err error
			open, err = a.client.Questions.List(b.Context())
			a.must(err)
			return len(open) == n
		})
		before := o.count("run.ended")
		began := time.Now()
		committed = together(n, atOnce, func(i int) {
			a.check(a.client.Questions.Approve(b.Context(), open[i].Run, messages.Control{Step: open[i].Step, By: "bench"}))
		})
		a.until("all runs go on and end", 2*time.Minute, func() bool { return o.count("run.ended") >= before+n })
		return committed, time.Since(began)
	}
	ask(30, "warm")
	say(30)
	idle, consumers := a.atRest()
	before := a.ends(streams.DefaultGeneration)

	began := time.Now()
	ask(runs, "asked")
	asked := time.Since(began)
	// The resources must not grow with the number of runs: a few unrelated goroutines may
	// exist.
	held, more := a.atRest()
	held, more = held-idle, more-consumers
	if held > runs/100 {
		a.logGoroutines()
	}
	size := 0
	for _, l := range a.since(streams.DefaultGeneration, before) {
		for _, raw := range l {
			size += len(raw)
		}
	}
	meter := load.NewMeter(a.processes()...)
	committed, resumed := say(runs)
	uses := meter.Read()

	what := fmt.Sprint(runs, " waiting runs")
	t.bar(b, held <= runs/100, what, fmt.Sprintf("%+d goroutines to %d on 3 nodes", held, idle), fmt.Sprintf("<= %+d", runs/100))
	t.bar(b, more <= 0, what, fmt.Sprintf("%+d consumers to %d", more, consumers), "+0")
	t.bar(b, size/runs < logBar, what, fmt.Sprintf("%d bytes of log each", size/runs), "< 4096")
	t.bar(b, resumed < resumeBar, what, fmt.Sprintf("all went on and ended in %s", load.Short(resumed)), "< 10s")
	t.note("", fmt.Sprintf("asked in %s, approved in %s", load.Short(asked), load.Short(committed)))
	t.note("", cpu(uses)+", machine "+busyness())
	b.ReportMetric(resumed.Seconds(), "s-resumed")
	b.ReportMetric(float64(size)/runs, "B/run")
}

// restAfter is the time until no resources of earlier work remain: sessions are passivated,
// goroutines kept for more of them have ended, and the consumers of ended relays are
// removed.
const restAfter = actors.DefaultPassivate + 30*time.Second

// atRest waits until no resources of earlier work remain, and returns the numbers of
// goroutines of all nodes and of consumers. If both measurements before and after a load
// are at rest, earlier work cannot hide resources of the load.
func (a *arena) atRest() (goroutines, consumers int) {
	a.b.Helper()
	time.Sleep(restAfter)
	goroutines, since := 1<<30, time.Now()
	for end := time.Now().Add(30 * time.Second); time.Since(since) < 5*time.Second && time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		n := 0
		for _, p := range a.f.Nodes() {
			n += a.stats(p).Goroutines
		}
		if n < goroutines {
			goroutines, since = n, time.Now()
		}
	}
	return goroutines, a.consumers()
}

// logGoroutines logs the most frequent goroutines of the nodes.
func (a *arena) logGoroutines() {
	a.b.Helper()
	for _, p := range a.f.Nodes() {
		c := http.Client{Timeout: 30 * time.Second}
		resp, err := c.Get(fmt.Sprintf("http://%s:%s/debug/pprof/goroutine?debug=1", p.IP(), statsPort))
		a.must(err)
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		a.must(errors.Join(err, resp.Body.Close()))
		a.b.Logf("%s: %s", p.Name, text)
	}
}

// consumers returns the number of consumers on all streams.
func (a *arena) consumers() int {
	a.b.Helper()
	n := 0
	all := a.js.ListStreams(a.b.Context())
	for s := range all.Info() {
		n += s.State.Consumers
	}
	a.must(all.Err())
	return n
}
