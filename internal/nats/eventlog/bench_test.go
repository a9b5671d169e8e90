package eventlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/natsserver"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
)

// BenchmarkAppend alternates an append with a bare JetStream publish, also with
// compare-and-set, of the same bytes over the same connection to a stream with the same
// settings, under a subject of the same length, so that both meet the same disk. The metric
// "x-bare" is the ratio of the median times: how many times the bare rate a writer of the
// log reaches. Server and client share this process.
func BenchmarkAppend(b *testing.B) {
	for _, lazy := range []bool{false, true} {
		for _, size := range []int{200, 2000} {
			b.Run(fmt.Sprintf("lazy=%v/text=%d", lazy, size), func(b *testing.B) { benchAppend(b, lazy, size) })
		}
	}
}

func benchAppend(b *testing.B, lazy bool, size int) {
	ctx := b.Context()
	srv := natstest.Start(b, &natsserver.Options{Lazy: lazy})
	o := streamstest.NodeOptions(srv)
	if lazy {
		o.Level = streams.Lazy
	}
	c := layer.Dial(b, o)
	must.Do(b, c.streams.Provision(ctx))
	watch, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { _ = c.streams.Capacity.WatchRoom(watch) }) // as nodes do
	defer watching.Wait()
	defer stop()
	l := c.Log()
	k := sessiontest.Key("s")
	text := strings.Repeat("x", size)
	other := sessiontest.Key("b")
	for i := 0; partition(other) == partition(k); i++ {
		other = sessiontest.Key(string(rune('c' + i)))
	}
	_, subject := must.Pair(EventSubject(other))(b)
	var (
		at        commitlog.Position
		last      uint64
		own, bare []time.Duration
	)
	appendOne := func(cm commitlog.Commit) {
		start := time.Now()
		next, err := l.Append(ctx, at, cm)
		own = append(own, time.Since(start))
		must.Do(b, err)
		at = next
	}
	publishOne := func(cm commitlog.Commit) {
		raw, err := commitlog.Encode(cm)
		must.Do(b, err)
		start := time.Now()
		ack, err := c.conn.JS.Publish(ctx, subject, raw, jetstream.WithExpectLastSequencePerSubject(last))
		bare = append(bare, time.Since(start))
		must.Do(b, err)
		last = ack.Sequence
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		cm := sessiontest.Commit(k, at, text)
		if i%2 == 0 {
			appendOne(cm)
			publishOne(cm)
		} else {
			publishOne(cm)
			appendOne(cm)
		}
	}
	middle := func(took []time.Duration) time.Duration {
		slices.Sort(took)
		return took[len(took)/2]
	}
	b.ReportMetric(middle(bare).Seconds()/middle(own).Seconds(), "x-bare")
	b.ReportMetric(float64(middle(own).Microseconds()), "us/append")
}

// BenchmarkActivate reads the tail of a session behind a snapshot, in a log
// that holds many others.
func BenchmarkActivate(b *testing.B) {
	ctx := b.Context()
	srv := natstest.Start(b, &natsserver.Options{Lazy: true})
	o := streamstest.NodeOptions(srv)
	o.Level = streams.Lazy
	c := layer.Dial(b, o)
	must.Do(b, c.streams.Provision(ctx))
	l := c.Log()
	k := sessiontest.Key("s")
	at := sessiontest.Grow(b, l, k, commitlog.Position{}, 1000)
	for i := range 20 {
		sessiontest.Grow(b, l, sessiontest.Key(fmt.Sprint("noise", i)), commitlog.Position{}, 100)
	}
	must.Do(b, l.(commitlog.Snapshotter).Save(ctx, k, at, []byte("state")))
	sessiontest.Grow(b, l, k, at, 5)
	b.Run("tail=5", func(b *testing.B) {
		for b.Loop() {
			at, _ := must.Pair(l.(commitlog.Snapshotter).Load(ctx, k))(b)
			if n := len(sessiontest.ReadAll(b, l, k, at)); n != 5 {
				b.Fatal(n)
			}
		}
	})
	b.Run("cold=1005", func(b *testing.B) {
		for b.Loop() {
			if n := len(sessiontest.ReadAll(b, l, k, commitlog.Position{})); n != 1005 {
				b.Fatal(n)
			}
		}
	})
}
