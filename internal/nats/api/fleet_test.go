//go:build e2e

package api_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/evidence/lineage"
	"github.com/rathcluster/rath/internal/nats/api"
	"github.com/rathcluster/rath/internal/nats/conn"
	"github.com/rathcluster/rath/internal/nats/dispatch"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/messages"
	"github.com/rathcluster/rath/session"
)

// TestClusterRelays relays on a cluster of three servers, from three processes,
// while sessions are written, a relay dies and a server is stopped. Readers get
// each record once and in order, and each run has one result.
func TestClusterRelays(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cluster := natstest.StartCluster(t, 3)
	open := func(first int) *api.Conn { return clustered(ctx, t, cluster.URLs(first)) }
	writer := open(0)
	must.Do(t, writer.Streams.Provision(ctx))
	var relays sync.WaitGroup
	relay := func(c *api.Conn, name string) (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		relays.Go(func() {
			if err := c.Dispatch.StartRelay(ctx, &dispatch.RelayOptions{Incarnation: name}).Wait(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		return cancel
	}
	var conns []*api.Conn
	var stops []func()
	for i := range 3 {
		conns = append(conns, open(i))
		stops = append(stops, relay(conns[i], fmt.Sprintf("r%d", i)))
	}
	const writers, each = 8, 30
	var ids [writers * each]session.ID
	var writing sync.WaitGroup
	began := time.Now()
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				id := writer.Logs.Minter().ID(fmt.Sprintf("w%d-%d", w, i))
				ids[w*each+i] = id
				turns(t, writer.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: id}, 2, true)
			}
		})
	}
	time.Sleep(2 * time.Second)
	conns[1].Kill()
	stops[1]()
	time.Sleep(2 * time.Second)
	victim := cluster.Leader(t, streams.StreamLineage)
	cluster.Stop(victim)
	time.Sleep(8 * time.Second)
	cluster.Start(t, victim)
	writing.Wait()
	t.Logf("wrote %d sessions in %v", writers*each, time.Since(began))
	caught := time.Now()
	reader := open(0)
	want := 0
	for _, id := range ids {
		for e, err := range reader.Logs.Log().Read(ctx, session.Key{Tenant: session.DefaultTenant, ID: id}, commitlog.Position{}) {
			must.Do(t, err)
			records := must.Get(lineage.Derive(e))(t)
			want += len(records)
		}
	}
	var read lineage.Cursor
	var have, kept int
	ends := map[session.ID]int{}
	for r, err := range tailAll(ctx, reader) {
		must.Do(t, err)
		have++
		if !read.Take(&r) {
			continue
		}
		kept++
		if r.Kind == messages.KindEnded {
			ends[r.Session]++
		}
		if kept == want {
			break
		}
	}
	t.Logf("%d records, %d of them repeated; the last came %v after the last commit", kept, have-kept, time.Since(caught))
	for _, id := range ids {
		if ends[id] != 1 {
			t.Errorf("session %s ended %d times", id, ends[id])
		}
	}
	nc := must.Get(nats.Connect(cluster.URLs(0)))(t)
	defer nc.Close()
	js := must.Get(jetstream.New(nc))(t)
	for n := uint64(0); n != writers*each; time.Sleep(50 * time.Millisecond) {
		s := must.Get(js.Stream(ctx, streams.StreamResult))(t)
		if n = s.CachedInfo().State.LastSeq; n > writers*each {
			t.Fatalf("%d results for %d runs", n, writers*each)
		}
	}
	stops[0]()
	stops[2]()
	relays.Wait()
	for _, c := range []*api.Conn{writer, conns[0], conns[2], reader} {
		must.Report(t, c.Conn.Close())
	}
}

// tailAll yields every record that LINEAGE holds, repetitions too.
func tailAll(ctx context.Context, c *api.Conn) func(func(messages.Record, error) bool) {
	return func(yield func(messages.Record, error) bool) {
		for m, err := range c.Stored(ctx, streams.StreamLineage, "rath.lineage.>") {
			if err != nil {
				yield(messages.Record{}, err)
				return
			}
			records, err := lineage.DecodeStored(m)
			if err != nil {
				yield(messages.Record{}, err)
				return
			}
			for _, r := range records {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// BenchmarkClusterRelay relays commits stored in a cluster of three servers: it measures
// how fast lineage is stored there.
func BenchmarkClusterRelay(b *testing.B) {
	cluster := natstest.StartCluster(b, 3)
	c := must.Get(api.Connect(b.Context(), &streams.Options{
		Options: conn.Options{URL: cluster.URLs(0)}, Replicas: 3, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "all", Always: true}}, nil
		},
	}))(b)
	defer c.Conn.Close()
	must.Do(b, c.Streams.Provision(b.Context()))
	var writing sync.WaitGroup
	commits := make([]int, 16)
	for w := range commits {
		writing.Go(func() {
			for i := 0; commits[w]*len(commits) < b.N; i++ {
				commits[w] += turns(b, c.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: c.Logs.Minter().ID(fmt.Sprintf("s%d-%d", w, i))}, 10, true)
			}
		})
	}
	writing.Wait()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	done := make(chan error, 1)
	nc := must.Get(nats.Connect(cluster.URLs(1)))(b)
	defer nc.Close()
	var tails atomic.Int64
	must.Get(nc.Subscribe("rath.tail.>", func(*nats.Msg) { tails.Add(1) }))(b)
	must.Do(b, nc.Flush())
	b.ResetTimer()
	go func() { done <- c.Dispatch.StartRelay(ctx, nil).Wait() }()
	ended, sessions, records := 0, 0, 0
	for _, n := range commits {
		sessions += n / 22
	}
	for r, err := range tailAll(ctx, c) {
		must.Do(b, err)
		records++
		if r.Kind == messages.KindEnded {
			if ended++; ended == sessions {
				break
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
	for end := time.Now().Add(10 * time.Second); tails.Load() < int64(records); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%d of %d records were told", tails.Load(), records)
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
}

// TestClusterHandover has relays of a cluster leave and die in turn, and measures the delay
// until the lineage of later writes is published.
func TestClusterHandover(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cluster := natstest.StartCluster(t, 3)
	open := func(first int) *api.Conn {
		t.Helper()
		c := must.Get(api.Connect(ctx, &streams.Options{
			Options: conn.Options{URL: cluster.URLs(first)}, Replicas: 3, Partitions: 4,
			Probe: func(context.Context) ([]streams.SyncState, error) {
				return []streams.SyncState{{Server: "all", Always: true}}, nil
			},
		}))(t)
		return c
	}
	writer := open(0)
	must.Do(t, writer.Streams.Provision(ctx))
	bare := startBare(ctx, t, cluster)
	ends := make(chan session.ID, 1<<10)
	reading, stopReading := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for r, err := range tailAll(reading, writer) {
			if err == nil && r.Kind == messages.KindEnded {
				ends <- r.Session
			}
		}
	})
	type process struct {
		c    *api.Conn
		stop context.CancelFunc
		done chan error
	}
	start := func(n int) *process {
		p := &process{c: open(n % 3), done: make(chan error, 1)}
		var ctx context.Context
		ctx, p.stop = context.WithCancel(reading)
		go func() {
			p.done <- p.c.Dispatch.StartRelay(ctx, &dispatch.RelayOptions{Incarnation: fmt.Sprintf("r%d", n)}).Wait()
		}()
		return p
	}
	live := []*process{start(0), start(1), start(2)}
	written := 0
	lag := func() time.Duration {
		began := time.Now()
		missing := map[session.ID]bool{}
		for range 12 {
			id := writer.Logs.Minter().ID(fmt.Sprintf("s%d", written))
			written++
			missing[id] = true
			turns(t, writer.Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: id}, 1, true)
		}
		for len(missing) > 0 {
			select {
			case id := <-ends:
				delete(missing, id)
			case <-ctx.Done():
				t.Fatal("no lineage")
			}
		}
		return time.Since(began)
	}
	t.Logf("at the start: %v", lag())
	t.Logf("in peace: %v", lag())
	for i := range 8 {
		p := live[0]
		live = append(live[1:], start(3+i))
		how, most := "leaves", 3*time.Second
		bare.allowance() // drop the measurements so far
		if i%2 == 1 {
			how, most = "dies", 6*time.Second
			p.c.Kill()
		}
		p.stop()
		d := lag()
		t.Logf("one %s: %v", how, d)
		if more := bare.allowance(); d > most+more {
			t.Errorf("one %s: lineage came after %v, want at most %v, and %v for what the cluster itself took", how, d, most, more)
		}
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		if how == "leaves" {
			must.Report(t, p.c.Conn.Close())
		}
		t.Logf("after that: %v", lag())
	}
	stopReading()
	for _, p := range live {
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		must.Report(t, p.c.Conn.Close())
	}
	work.Wait()
	must.Report(t, writer.Conn.Close())
}

// TestClusterFollow begins to follow streams of a cluster, from all servers and many at a
// time, as the relays do when one of them dies: a new consumer does not at once receive
// requests from another server.
func TestClusterFollow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cluster := natstest.StartCluster(t, 3)
	var conns []*api.Conn
	for i := range 3 {
		c := must.Get(api.Connect(ctx, &streams.Options{
			Options: conn.Options{URL: cluster.URLs(i)}, Replicas: 3, Partitions: 4,
			Probe: func(context.Context) ([]streams.SyncState, error) {
				return []streams.SyncState{{Server: "all", Always: true}}, nil
			},
		}))(t)
		defer c.Conn.Close()
		conns = append(conns, c)
	}
	must.Do(t, conns[0].Streams.Provision(ctx))
	for p, written := uint32(0), 0; p < 4; written++ {
		id := conns[0].Logs.Minter().ID(fmt.Sprint("s", written))
		if stream, _, err := eventlog.EventSubject(session.Key{Tenant: session.DefaultTenant, ID: id}); err != nil {
			t.Fatal(err)
		} else if stream == streams.EventStream(streams.DefaultGeneration, p) {
			turns(t, conns[0].Logs.Log(), session.Key{Tenant: session.DefaultTenant, ID: id}, 1, true)
			p++
		}
	}
	bare := startBare(ctx, t, cluster)
	var mu sync.Mutex
	var all []time.Duration
	for range 40 {
		var work sync.WaitGroup
		for i := range 12 {
			work.Go(func() {
				began := time.Now()
				for _, err := range conns[i%3].Stored(ctx, streams.EventStream(streams.DefaultGeneration, uint32(i/3)), ">") {
					must.Report(t, err)
					break
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, time.Since(began))
			})
		}
		work.Wait()
	}
	slices.Sort(all)
	t.Logf("%d followers had their first message after p50 %v, p99 %v, at most %v", len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	// A request that was lost is missed after two beats of a second.
	if worst, more := all[len(all)-1], bare.allowance(); worst >= 2*time.Second+more {
		t.Errorf("a follower had its first message after %v, want it before 2s, and %v for what the cluster itself took", worst, more)
	}
}

// clustered connects to a cluster of three, with a probe that reports synced writes.
func clustered(ctx context.Context, tb testing.TB, urls string) *api.Conn {
	tb.Helper()
	c := must.Get(api.Connect(ctx, &streams.Options{
		Options: conn.Options{URL: urls}, Replicas: 3, Partitions: 2,
		Probe: func(context.Context) ([]streams.SyncState, error) {
			return []streams.SyncState{{Server: "all", Always: true}}, nil
		},
	}))(tb)
	return c
}
