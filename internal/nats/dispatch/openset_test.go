package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/core/journal"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/schedule"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/run"
	"github.com/rathcluster/rath/session"
)

// onePartition returns a connection to a server that does not sync, with one
// event stream.
func onePartition(tb testing.TB) *Dispatch {
	tb.Helper()
	o := streamstest.NodeOptions(natstest.Start(tb, &natsserver.Options{Lazy: true}))
	o.Level, o.Partitions = streams.Lazy, 1
	c := layer.Dial(tb, o)
	must.Do(tb, c.streams.Provision(tb.Context()))
	return c
}

// openWaiting appends n sessions, each with a run that waits for two weeks.
func openWaiting(tb testing.TB, c *Dispatch, name string, n int) []session.Key {
	tb.Helper()
	keys := make([]session.Key, n)
	var next atomic.Int64
	var work sync.WaitGroup
	for range 16 {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				k := session.Key{Tenant: session.DefaultTenant, ID: c.logs.Minter().ID(fmt.Sprint(name, i))}
				id := run.ID(k.ID)
				openRun(tb, c, k, id,
					event(tb, journal.KindClaimed, journal.Claimed{Attempt: 1, Epoch: 1, Home: k, Incarnation: "gone", Run: id, Workflow: "w"}),
					event(tb, journal.KindRunWaiting, journal.RunWaiting{Attempt: 1, Run: id, For: []journal.Wait{{
						Kind: "approval", Path: "0", Due: time.Now().Add(14 * 24 * time.Hour).UnixMilli(),
					}}}))
				keys[i] = k
			}
		})
	}
	work.Wait()
	return keys
}

// openRun appends the first commit of a session: a run is submitted.
func openRun(tb testing.TB, c *Dispatch, k session.Key, id run.ID, more ...session.Event) {
	tb.Helper()
	events := append([]session.Event{
		event(tb, journal.KindWriter, journal.WriterOpened{Epoch: 1, Incarnation: "gone"}),
		session.OpenedEvent(session.Opening{Kind: session.OpenLeaf, Run: string(id)}),
		event(tb, journal.KindSubmitted, map[string]any{"digest": "d", "task": map[string]any{"run": id, "workflow": "w"}}),
	}, more...)
	now := time.Now()
	for i := range events {
		events[i].Time = now
	}
	if _, err := c.logs.Log().Append(tb.Context(), commitlog.Position{}, commitlog.Commit{Key: k, Root: k.ID, Seq: 1, Epoch: 1, Events: events}); err != nil {
		tb.Error(err)
	}
}

func event(tb testing.TB, kind string, payload any) session.Event {
	tb.Helper()
	e, err := journal.NewEvent(kind, payload)
	must.Report(tb, err)
	return e
}

// newDispatcher returns one of the first partition, all of whose workflows belong
// to the default pool.
func newDispatcher(c *Dispatch) *dispatcher {
	o := &RelayOptions{Incarnation: "relay", Pools: func(context.Context, session.Tenant, string, string) ([]schedule.Pool, error) {
		return []schedule.Pool{{Name: DefaultPool}}, nil
	}}
	return &dispatcher{c: c, o: o.complete(c), generation: c.streams.Generation(), stream: streams.EventStream(c.streams.Generation(), 0), requests: make(chan func())}
}

// dispatchFor has a dispatcher run for a while.
func dispatchFor(t *testing.T, c *Dispatch, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := newDispatcher(c).run(ctx); ctx.Err() == nil {
		t.Fatal(err)
	}
}

// TestOpenSetOfManyRuns has one partition hold more waiting runs than fit into one message:
// the next relay has all of them, and stores only the changed pages again.
func TestOpenSetOfManyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const runs, answered = 20_000, 5
		c := onePartition(t)
		keys := openWaiting(t, c, "s", runs)
		dispatchFor(t, c, 10*time.Second)
		d := newDispatcher(c)
		must.Do(t, d.load(t.Context()))
		if d.s.Open() != runs || d.at.Token != runs {
			t.Errorf("%d of %d runs are open after commit %d", d.s.Open(), runs, d.at.Token)
		}
		for _, k := range keys[:answered] {
			last := must.Get(c.logs.Log().Last(t.Context(), k))(t)
			at := last.At
			e := event(t, journal.KindSignalReceived, journal.SignalReceived{Kind: journal.Respond, N: 1, Path: "0", Run: run.ID(k.ID), Wake: 1, Workflow: "w"})
			e.Time = time.Now()
			must.Get(c.logs.Log().Append(t.Context(), at, commitlog.Commit{Key: k, Root: k.ID, Seq: 2, Epoch: 1, Prev: at.Hash, Events: []session.Event{e}}))(t)
		}
		before := must.Get(c.messages.LastSequence(t.Context(), streams.StreamSnap))(t)
		dispatchFor(t, c, 10*time.Second)
		after := must.Get(c.messages.LastSequence(t.Context(), streams.StreamSnap))(t)
		// The changed pages, a root, and another one at the end.
		if n := after - before; n == 0 || n > answered+2 {
			t.Errorf("%d messages were stored for %d commits", n, answered)
		}
	})
}

// takeoverBar bounds the time until a relay dispatches the first run of a partition that it
// takes over.
const takeoverBar = time.Second

// BenchmarkTakeover takes over a partition with 60,000 waiting runs again and again: its
// open set is read, later commits are folded, and a runnable run gets to a node.
func BenchmarkTakeover(b *testing.B) {
	const runs, tail = 60_000, 1000
	c := onePartition(b)
	openWaiting(b, c, "s", runs)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	d := newDispatcher(c)
	saved := make(chan error, 1)
	saving, stop := context.WithCancel(ctx)
	go func() { saved <- d.run(saving) }()
	for known := (openSetRoot{}); known.Token < runs; time.Sleep(100 * time.Millisecond) {
		must.Get(c.logs.LoadCheckpoint(ctx, d.rootSubject(), &known))(b)
	}
	stop()
	<-saved
	openRun(b, c, session.Key{Tenant: session.DefaultTenant, ID: c.logs.Minter().ID("runnable")}, "runnable")

	taken := make(chan time.Time, 16)
	node := make(chan error, 1)
	go func() {
		node <- c.ServeRuns(ctx, &Host{
			Incarnation: "node", Pool: DefaultPool, Free: func() int { return 1 }, Freed: make(chan struct{}),
			Take: func(context.Context, journal.Task) (journal.Answer, error) {
				taken <- time.Now()
				return journal.AnswerQueued, nil
			},
		})
	}()
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		openWaiting(b, c, fmt.Sprint("tail", len(took)), tail)
		b.StartTimer()
		ctx, stop := context.WithCancel(ctx)
		d := newDispatcher(c)
		ended := make(chan struct{})
		began := time.Now()
		go func() {
			_ = d.run(ctx) // ends with ctx
			close(ended)
		}()
		took = append(took, (<-taken).Sub(began))
		stop()
		<-ended
	}
	cancel()
	<-node
	slices.Sort(took)
	p50, most := took[len(took)/2], took[len(took)-1]
	b.ReportMetric(p50.Seconds(), "s-p50")
	b.ReportMetric(most.Seconds(), "s-max")
	if p50 > takeoverBar {
		b.Errorf("a partition with %d waiting runs was taken over within %v (p50), want %v", runs, p50, takeoverBar)
	}
}
