//go:build e2e

package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rathcluster/rath/internal/core/commitlog"
	"github.com/rathcluster/rath/internal/nats/streams"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/internal/testkit/natstest"
	"github.com/rathcluster/rath/internal/testkit/sessiontest"
	"github.com/rathcluster/rath/session"
)

// TestClusterWriters lets many sessions be written, and read back, while the
// leader of their stream is stopped and started again. No append fails, each
// is stored once, and the position from Last is never outdated.
func TestClusterWriters(t *testing.T) {
	ctx := t.Context()
	cluster := natstest.StartCluster(t, 3)
	c := layer.Dial(t, streamstest.ClusterOptions(cluster, 0))
	must.Do(t, c.streams.Provision(ctx))
	if err := c.streams.Provision(ctx); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	const writers = 16
	var (
		wg      sync.WaitGroup
		stop    = make(chan struct{})
		keys    [writers]session.Key
		ends    [writers]commitlog.Position
		appends atomic.Int64
		slowest atomic.Int64
	)
	for w := range writers {
		keys[w] = sessiontest.Key(fmt.Sprintf("writer%d", w))
		cw := layer.Dial(t, streamstest.ClusterOptions(cluster, w%3))
		wg.Go(func() {
			at, err := write1(ctx, cw.Log(), keys[w], stop, func(d time.Duration) {
				appends.Add(1)
				for old := slowest.Load(); int64(d) > old && !slowest.CompareAndSwap(old, int64(d)); old = slowest.Load() {
				}
			})
			if err != nil {
				t.Errorf("writer %d: %v", w, err)
			}
			ends[w] = at
		})
	}
	time.Sleep(3 * time.Second)
	victim := cluster.Leader(t, streams.EventStream(1, 0))
	cluster.Stop(victim)
	time.Sleep(6 * time.Second)
	cluster.Start(t, victim)
	time.Sleep(3 * time.Second)
	close(stop)
	wg.Wait()
	t.Logf("%d appends, the slowest took %v", appends.Load(), time.Duration(slowest.Load()))
	var messages uint64
	for w := range writers {
		entries := sessiontest.ReadAll(t, c.Log(), keys[w], commitlog.Position{})
		if len(entries) != int(ends[w].Seq) {
			t.Errorf("writer %d: %d commits, want %d", w, len(entries), ends[w].Seq)
		}
		messages += ends[w].Seq
	}
	if got := stored64(t, c, sessiontest.Key("a")) + stored64(t, c, otherPartition(sessiontest.Key("a"))); got != messages {
		t.Errorf("%d messages stored, %d appends succeeded", got, messages)
	}
}

// otherPartition returns a session in the other one of two partitions.
func otherPartition(k session.Key) session.Key {
	for i := 0; ; i++ {
		if o := sessiontest.Key(fmt.Sprintf("o%d", i)); partition(o) != partition(k) {
			return o
		}
	}
}

// write1 appends to one session until stop, looking at the log in between.
func write1(ctx context.Context, l commitlog.Log, k session.Key, stop <-chan struct{}, done func(time.Duration)) (commitlog.Position, error) {
	var at commitlog.Position
	for {
		select {
		case <-stop:
			return at, nil
		default:
		}
		start := time.Now()
		next, err := l.Append(ctx, at, sessiontest.Commit(k, at, "x"))
		if err != nil {
			return at, err
		}
		at = next
		done(time.Since(start))
		last, err := l.Last(ctx, k)
		if err != nil {
			return at, err
		}
		if last.At != at {
			return at, fmt.Errorf("Last says %d after %d was acknowledged", last.At.Seq, at.Seq)
		}
		if at.Seq%25 != 0 {
			continue
		}
		var end commitlog.Position
		for e, err := range l.Read(ctx, k, commitlog.Position{}) {
			if err != nil {
				return at, err
			}
			end = e.At
		}
		if end != at {
			return at, fmt.Errorf("Read ends at %d, want %d", end.Seq, at.Seq)
		}
	}
}

// TestClusterBlobs reads blobs right after they were stored, from replicas
// that may not have them yet.
func TestClusterBlobs(t *testing.T) {
	ctx := t.Context()
	cluster := natstest.StartCluster(t, 3)
	c := layer.Dial(t, streamstest.ClusterOptions(cluster, 0))
	must.Do(t, c.streams.Provision(ctx))
	readers := []*Logs{c, layer.Dial(t, streamstest.ClusterOptions(cluster, 1)), layer.Dial(t, streamstest.ClusterOptions(cluster, 2))}
	for i := range 200 {
		data := bytes.Repeat(fmt.Appendf(nil, "%d ", i), 1+i*i)
		ref, err := c.Blobs("default").Put(ctx, bytes.NewReader(data))
		must.Do(t, err)
		r, err := readers[i%3].Blobs("default").Get(ctx, ref.Digest)
		must.Do(t, err)
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("blob %d: %d bytes of %d, %v", i, len(got), len(data), err)
		}
	}
}
