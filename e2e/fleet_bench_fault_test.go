//go:build e2e && linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/testkit/fleet"
	"github.com/rathcluster/rath/internal/testkit/load"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/messages"
)

const (
	// continueBar bounds the time until the open runs of a dead or frozen node resume.
	continueBar = 2500 * time.Millisecond
	// continueMost is when the benchmark gives up.
	continueMost = 60 * time.Second
)

func benchKill(b *testing.B, t *table) {
	continuation(b, t, "kill -9", (*fleet.Process).Kill, (*fleet.Process).Start)
}

// benchRestart starts the node again soon: it may take its own partitions over, and
// the runs that it held.
func benchRestart(b *testing.B, t *table) {
	pauses := []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second}
	started := make(chan error, 1)
	try := 0
	continuation(b, t, "restart", func(p *fleet.Process) error {
		pause := pauses[try%len(pauses)]
		try++
		if err := p.Kill(); err != nil {
			return err
		}
		go func() {
			time.Sleep(pause)
			started <- p.Start()
		}()
		return nil
	}, func(*fleet.Process) error { return <-started })
}

func benchFreeze(b *testing.B, t *table) {
	continuation(b, t, "freeze", (*fleet.Process).Freeze, (*fleet.Process).Thaw)
}

// continuation repeatedly harms one of three nodes while all are at work, and measures when
// its runs resume elsewhere.
func continuation(b *testing.B, t *table, what string, harm, mend func(*fleet.Process) error) {
	const latency, turns, atOnce = 100 * time.Millisecond, 30, 12
	a := newArena(b, 3, 3, 8, latency)
	o := a.observe()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	loaded := make(chan *load.Report, 1)
	go func() {
		r, err := load.Run(ctx, a.conn, &load.Options{
			Workflow: "calls", Tasks: load.MaxTasks, InFlight: atOnce, Duration: time.Hour, Task: number(turns), Processes: a.processes(),
		})
		must.Report(b, err)
		loaded <- r
	}()
	var first, last, stepped, read []time.Duration
	meter := load.NewMeter(a.processes()...)
	shares := ""
	for try := range *flagTries {
		p := a.f.Nodes()[try%3]
		incarnation := a.incarnation(p)
		var held []string
		a.until("a node holds three runs", time.Minute, func() bool {
			held = o.held(incarnation)
			return len(held) >= 3
		})
		if shares == "" {
			shares = cpu(meter.Read()) // no process was replaced yet
		}
		began := time.Now()
		a.must(harm(p))
		// Earlier messages may still be on their way to the observer.
		a.must(a.operator.Flush())
		asked := time.Now()
		if _, err := a.client.Sessions.Get(ctx, held[0]); err != nil {
			b.Errorf("read a session of %s: %v", p.Name, err)
		}
		read = append(read, time.Since(asked))
		var worst, soonest, worstStep time.Duration
		for _, id := range held {
			var s observed
			a.until(fmt.Sprintf("session %s of %s goes on", id, p.Name), continueMost, func() bool {
				s = o.on(id)
				return s.holder != incarnation && !s.stepped.IsZero() || !s.open
			})
			if s.holder == incarnation {
				continue // it had ended
			}
			worst, worstStep = max(worst, s.by.Sub(began)), max(worstStep, s.stepped.Sub(began))
			if soonest == 0 || s.by.Sub(began) < soonest {
				soonest = s.by.Sub(began)
			}
		}
		if worst == 0 {
			b.Fatalf("try %d: all of the runs that %s held had ended", try, p.Name)
		}
		b.Logf("%s %s with %d runs: on elsewhere after %s to %s, next step after %s", what, p.Name, len(held), load.Short(soonest), load.Short(worst), load.Short(worstStep))
		first, last, stepped = append(first, soonest), append(last, worst), append(stepped, worstStep)
		a.must(mend(p))
		up, done := context.WithTimeout(ctx, time.Minute)
		a.must(p.Up(up))
		done()
		a.until(p.Name+" is at work again", time.Minute, func() bool { return len(o.held(a.incarnation(p))) > 0 })
	}
	cancel()
	if r := <-loaded; r != nil && r.Failed > 0 {
		b.Errorf("%d runs failed:\n%s", r.Failed, r.Table())
	}
	d := load.Distribute(last)
	t.bar(b, d.Max < continueBar, what+": all go on", spread(d), "max < 2.5s")
	b.ReportMetric(d.P50.Seconds(), "s-p50")
	b.ReportMetric(d.Max.Seconds(), "s-max")
	t.note(what+": first goes on", spread(load.Distribute(first)))
	t.note(what+": next step of all", spread(load.Distribute(stepped)))
	t.note(what+": read at once", spread(load.Distribute(read)))
	t.note("", fmt.Sprintf("%d tries, load %s, %s", *flagTries, busyness(), shares))
}

func spread(d load.Distribution) string {
	return fmt.Sprintf("p50 %s p90 %s max %s", load.Short(d.P50), load.Short(d.P90), load.Short(d.Max))
}

// incarnation returns the incarnation of the node's current process: of several with its
// name, the latest start.
func (a *arena) incarnation(p *fleet.Process) string {
	a.b.Helper()
	bucket, err := a.js.KeyValue(a.b.Context(), "NODE")
	a.must(err)
	var newest messages.Node
	a.until("the entry of "+p.Name, 30*time.Second, func() bool {
		keys, err := bucket.Keys(a.b.Context())
		a.must(err)
		for _, key := range keys {
			e, err := bucket.Get(a.b.Context(), key)
			if err != nil {
				continue // it has just ended
			}
			var n messages.Node
			a.must(json.Unmarshal(e.Value(), &n))
			if n.Name == p.Name && n.Started >= newest.Started {
				newest = n
			}
		}
		return newest.Name != ""
	})
	return newest.Incarnation
}
