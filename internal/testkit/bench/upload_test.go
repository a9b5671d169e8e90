package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rathcluster/rath/client"
	"github.com/rathcluster/rath/internal/nats/supervise"
	"github.com/rathcluster/rath/internal/testkit/must"
	"github.com/rathcluster/rath/node"
	"github.com/rathcluster/rath/workspace"
)

const (
	uploadFiles   = 5000
	uploadFile    = 10 << 10 // so that all have 50 MB
	uploadChanged = 10
	uploadWriters = 8 // objects at once, as many as an upload has files

	// uploadBar is the limit of an upload to an empty store, as a multiple of the time that
	// the bytes take in a bare object store.
	uploadBar = 2.0
	// uploadAgainBar is the limit of an upload after a few files changed, as a fraction of
	// the same time.
	uploadAgainBar = 1.0 / 20
)

// BenchmarkUpload has a client without credentials upload a directory of 5,000 files to a
// node that syncs before it acknowledges, and once more after ten of them changed; a bare
// object store on a server that syncs takes the same bytes right before. It fails where
// an upload takes more than its part of that.
func BenchmarkUpload(b *testing.B) {
	store := b.TempDir()
	n := must.Get(node.Start(b.Context(), &node.Options{Store: store, NATS: node.NATS{Port: -1}}))(b)
	defer n.Close()
	at := must.Get(supervise.ReadAttachment(store))(b)
	c := must.Get(client.Connect(b.Context(), at.URL, nil))(b)
	defer c.Close()
	objects := objectStore(b)
	random := rand.NewChaCha8([32]byte{1})
	for b.Loop() {
		dir, cache, files := b.TempDir(), b.TempDir(), make([][]byte, uploadFiles)
		write := func(i int) {
			files[i] = make([]byte, uploadFile)
			_, _ = random.Read(files[i]) // it never fails
			must.Do(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.bin", i)), files[i], 0o644))
		}
		for i := range files {
			write(i)
		}
		upload := func() time.Duration {
			began := time.Now()
			o := workspace.ImportOptions{Cache: cache, Store: at.URL}
			must.Get(workspace.Import(b.Context(), c.Blobs(), dir, &o))(b)
			return time.Since(began)
		}
		bare := putObjects(b, objects, files)
		first := upload()
		for i := range uploadChanged {
			write(i * uploadFiles / uploadChanged)
		}
		again := upload()
		b.ReportMetric(bare.Seconds(), "s-object-store")
		b.ReportMetric(first.Seconds()/bare.Seconds(), "x-first")
		b.ReportMetric(uploadBar, "x-first-bar")
		b.ReportMetric(again.Seconds()/first.Seconds(), "x-again")
		b.ReportMetric(uploadAgainBar, "x-again-bar")
		b.Logf("object store %v, first %v, again %v", bare, first, again)
		if first.Seconds() > uploadBar*bare.Seconds() {
			b.Errorf("an upload takes %v, the object store %v: bar %.1f times", first, bare, uploadBar)
		}
		if again.Seconds() > uploadAgainBar*first.Seconds() {
			b.Errorf("an upload of %d files that changed takes %v, the first %v: bar %.2f of it", uploadChanged, again, first, uploadAgainBar)
		}
	}
}

// objectStore makes an empty object store on a server of its own, which syncs each write.
func objectStore(b *testing.B) jetstream.ObjectStore {
	b.Helper()
	s := must.Get(server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true}))(b)
	s.Start()
	b.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		b.Fatal("the server of the object store does not start")
	}
	nc := must.Get(nats.Connect(s.ClientURL()))(b)
	b.Cleanup(nc.Close)
	js := must.Get(jetstream.New(nc))(b)
	objects := must.Get(js.CreateObjectStore(b.Context(), jetstream.ObjectStoreConfig{Bucket: "bare", MaxBytes: 1 << 30}))(b)
	return objects
}

// putObjects puts each file as an object and returns the total duration.
func putObjects(b *testing.B, objects jetstream.ObjectStore, files [][]byte) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	began := time.Now()
	next := make(chan int)
	var wg sync.WaitGroup
	for range uploadWriters {
		wg.Go(func() {
			for i := range next {
				meta := jetstream.ObjectMeta{Name: fmt.Sprintf("%d-%04d", began.UnixNano(), i)}
				if _, err := objects.Put(ctx, meta, bytes.NewReader(files[i])); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	wg.Wait()
	must.Do(b, context.Cause(ctx))
	return time.Since(began)
}
