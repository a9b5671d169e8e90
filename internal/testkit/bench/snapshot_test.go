package bench

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/rathcluster/rath/blob"
	"github.com/rathcluster/rath/internal/nats/eventlog"
	"github.com/rathcluster/rath/internal/nats/streams/streamstest"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/workspace"
)

const (
	snapshotFiles   = 5000
	snapshotFile    = 10 << 10
	snapshotChanged = 10

	// snapshotBar is how often the time of tar and zstd into a file that is synced a
	// first snapshot into the store may take.
	snapshotBar = 2.0
	// snapshotNewBar is the part of the first snapshot's bytes that one may store where
	// a few files changed.
	snapshotNewBar = 0.02
)

var eventlogs = streamstest.Layer[*eventlog.Logs](eventlog.NewLogs)

// countingStore counts the bytes that are stored.
type countingStore struct {
	blob.Store
	n atomic.Int64
}

func (s *countingStore) Put(ctx context.Context, r io.Reader) (blob.Ref, error) {
	ref, err := s.Store.Put(ctx, r)
	s.n.Add(ref.Size)
	return ref, err
}

// BenchmarkSnapshot takes snapshots of 5,000 files of 10 KiB, half of them text, into a
// store that syncs before it acknowledges, compared with tar and zstd into a synced file;
// and once more after ten of them changed. Both figures are the best times.
func BenchmarkSnapshot(b *testing.B) {
	logs := eventlogs.Open(b)
	random := rand.New(rand.NewPCG(1, 2))
	leastTar, leastTook := time.Hour, time.Hour
	for b.Loop() {
		dir := b.TempDir()
		write := func(i int) {
			data := make([]byte, snapshotFile)
			if i%2 == 0 {
				for n := 0; n < len(data); {
					n += copy(data[n:], sourceWords[random.IntN(len(sourceWords))])
				}
			} else {
				for n := range data {
					data[n] = byte(random.Uint32())
				}
			}
			p := filepath.Join(dir, fmt.Sprintf("d%02d", i%100), fmt.Sprintf("%04d.txt", i))
			must.Do(b, os.MkdirAll(filepath.Dir(p), 0o755))
			must.Do(b, os.WriteFile(p, data, 0o644))
		}
		for i := range snapshotFiles {
			write(i)
		}
		tarred := tarTime(b, dir)
		store := &countingStore{Store: logs.Blobs("default")}
		snapshot := func(base blob.Digest) (head blob.Digest, bytes int64, took time.Duration) {
			before, began := store.n.Load(), time.Now()
			head = must.Get(workspace.Snapshot(b.Context(), store, dir, base, workspace.Limits{}))(b)
			return head, store.n.Load() - before, time.Since(began)
		}
		head, all, took := snapshot(blob.Digest{})
		for i := range snapshotChanged {
			write(i * snapshotFiles / snapshotChanged)
		}
		_, changed, _ := snapshot(head)
		leastTar, leastTook = min(leastTar, tarred), min(leastTook, took)
		b.ReportMetric(float64(changed)/float64(all), "x-new-bytes")
		b.ReportMetric(snapshotNewBar, "x-new-bytes-bar")
		b.Logf("tar, zstd and a sync %v, the first snapshot %v; %d bytes, then %d", tarred, took, all, changed)
		if float64(changed) > snapshotNewBar*float64(all) {
			b.Errorf("a snapshot after %d files changed stores %d bytes, the first %d: bar %.2f of it", snapshotChanged, changed, all, snapshotNewBar)
		}
	}
	b.ReportMetric(leastTook.Seconds()/leastTar.Seconds(), "x-tar")
	b.ReportMetric(snapshotBar, "x-tar-bar")
	if leastTook.Seconds() > snapshotBar*leastTar.Seconds() {
		b.Errorf("the first snapshot takes %v, tar, zstd and a sync %v: bar %.1f times", leastTook, leastTar, snapshotBar)
	}
}

// sourceWords make text that compresses as source code does.
var sourceWords = func() []string {
	random, all := rand.New(rand.NewPCG(3, 4)), make([]string, 3000)
	for i := range all {
		all[i] = strings.Repeat("\t", random.IntN(2)) + fmt.Sprintf("%x", random.Uint64())[:2+random.IntN(8)] + []string{" ", "\n", "(", ") ", ", "}[random.IntN(5)]
	}
	return all
}()

// tarTime returns the time of tar and zstd of a directory into a synced file.
func tarTime(b *testing.B, dir string) time.Duration {
	b.Helper()
	f := must.Get(os.Create(filepath.Join(b.TempDir(), "tar.zst")))(b)
	defer f.Close()
	began := time.Now()
	z := must.Get(zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest)))(b)
	w := tar.NewWriter(z)
	must.Do(b, w.AddFS(os.DirFS(dir)))
	for _, end := range []func() error{w.Close, z.Close, f.Sync} {
		must.Do(b, end())
	}
	return time.Since(began)
}
